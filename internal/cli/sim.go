// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/jsonschema"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/simulate"
	"github.com/roux-engine/roux/internal/simulate/answer"
	"github.com/roux-engine/roux/internal/term"
	"github.com/roux-engine/roux/internal/userfile"
	"github.com/roux-engine/roux/internal/view"
)

// simFile bounds an input file of a simulation, because all of them are in memory.
const simFile = 64 << 20

// A simulated is the result of the simulations of a recipe.
type simulated struct {
	Recipe      string               `json:"recipe"`
	Seed        uint64               `json:"seed"`
	Schedules   uint64               `json:"schedules"`
	Runs        int64                `json:"runs"`
	Transitions int64                `json:"transitions"`
	Faults      int64                `json:"faults"`
	Crashes     int64                `json:"crashes"`
	ByFault     map[string]int64     `json:"faultsByKind"`
	Hash        string               `json:"hash"`
	Ends        []simEnd             `json:"ends"`
	Steps       []simulate.StepTally `json:"steps"`
	Violation   *simViolation        `json:"violation,omitempty"`
}

type simEnd struct {
	simulate.End
	Runs int64 `json:"runs"`
}

type simViolation struct {
	Seed    uint64   `json:"seed"`
	Broken  string   `json:"broken"`
	Version string   `json:"version"`
	Replay  string   `json:"replay"`
	Last    []string `json:"last"` // the last things that happened, a line each
}

// simulatorCommands are the commands that a small binary does not have.
func (a *app) simulatorCommands() []*cobra.Command { return []*cobra.Command{a.simCommand()} }

func (a *app) simCommand() *cobra.Command {
	var in, files, answers, signals []string
	limit := int64(defaultSource)
	schedules, seed := uint64(1_000), uint64(1)
	trace := false
	cmd := &cobra.Command{
		Use:   "sim FILE",
		Short: "Play a recipe through simulated disasters: crashes, full disks, lost messages",
		Long: "Play a recipe through simulated disasters: crashes, power cuts, full disks, lost, late and doubled messages, clocks that jump. " +
			"The engine is the real one. Actions are not carried out: their results are made up from their output schemas, and some fail. " +
			"The result is how runs ended, and which steps may be attempted more than once. A seed determines everything that happens.",
		Example: "roux sim examples/race.yaml\nroux sim recipe.yaml --schedules 10000 --seed 7 --input pages=12\nroux sim recipe.yaml --answer 'fetch={\"status\": 200}' --signal 'approved={\"by\": \"ann\"}'\nroux sim recipe.yaml --schedules 1 --seed 4711 --trace",
		Args:    wants(1, 1, "FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if schedules < 1 {
				return fault.New(fault.Usage, "--schedules 0: want at least 1")
			}
			c, err := a.compileFile(args[0], limit)
			if err != nil {
				if c != nil {
					a.printDiagnostics(a.stderr, c)
					a.shown = true
				}
				return err
			}
			input, err := inputs(in, c.plan.InputSchema, a.stdin)
			if err != nil {
				return err
			}
			given, err := a.simFiles(files)
			if err != nil {
				return err
			}
			if len(given) == 0 && readsFiles(c.plan) {
				given = []simulate.File{madeUpFile()}
				a.say("the recipe works on files and was given none: its runs get a small made-up one; --file names others")
			}
			if err := a.simInput(c.plan, input, given); err != nil {
				return err
			}
			one := simulate.NewOne(c.recipe.Name, c.text, c.plan, a.actions, input, given)
			if err := fixed(one, answers, signals); err != nil {
				return err
			}
			s := &simulation{app: a, c: c, seed: seed, schedules: schedules, tally: simulate.NewTally(c.plan)}
			s.again = replayCommand(args[0], map[string][]string{"--input": in, "--file": files, "--answer": answers, "--signal": signals})
			opt := simulate.Options{Source: one, Durable: s.tally.Observe}
			if trace {
				opt.Trace = func(line string) { a.text("%s\n", view.OneLine(line)) }
			}
			if err := s.play(cmd.Context(), opt); err != nil {
				return err
			}
			out := s.result()
			a.show(out, func() { a.printSimulated(out) })
			if v := out.Violation; v != nil {
				return fault.New(fault.InternalError, "seed %d: %s; this is a mistake in Roux, not in the recipe: please report it with the recipe and `%s`", v.Seed, v.Broken, v.Replay)
			}
			return nil
		},
	}
	cmd.Flags().Uint64Var(&schedules, "schedules", schedules, "how many schedules to play; each starts a few runs")
	cmd.Flags().Uint64Var(&seed, "seed", seed, "the first seed; the next schedule has the next one")
	cmd.Flags().StringArrayVar(&in, "input", nil, "input field name=value, or @file with an object of them (repeatable)")
	cmd.Flags().StringArrayVar(&files, "file", nil, "input file, or a pattern in quotes such as 'scans/*.pdf' (repeatable)")
	cmd.Flags().StringArrayVar(&answers, "answer", nil, "output of a step, step=JSON, in place of a made-up one (repeatable)")
	cmd.Flags().StringArrayVar(&signals, "signal", nil, "payload of a signal, name=JSON (repeatable)")
	cmd.Flags().BoolVar(&trace, "trace", false, "show everything that happens, line by line")
	a.sourceFlags(cmd, &limit)
	return cmd
}

// fixed sets the outputs of steps and the payloads of signals that the user gave.
func fixed(one *simulate.One, answers, signals []string) error {
	for _, arg := range answers {
		name, raw, err := nameAndJSON("--answer", arg)
		if err != nil {
			return err
		}
		if !one.Answer(name, raw) {
			return fault.New(fault.StepNotFound, "--answer %s: no step of that id calls an action", view.OneLine(name))
		}
	}
	for _, arg := range signals {
		name, raw, err := nameAndJSON("--signal", arg)
		if err != nil {
			return err
		}
		payload, err := jsonx.Decode(raw, jsonx.Limits{})
		if err != nil {
			return err
		}
		if !one.Signal(name, payload) {
			return fault.New(fault.Usage, "--signal %s: no step waits for it", view.OneLine(name))
		}
	}
	return nil
}

// nameAndJSON splits name=JSON.
func nameAndJSON(flag, arg string) (name string, raw []byte, err error) {
	name, text, ok := strings.Cut(arg, "=")
	if !ok || name == "" {
		return "", nil, fault.New(fault.Usage, "%s %s: want name=JSON, such as %s fetch='{\"status\": 200}'", flag, view.OneLine(view.Cut(arg, 60)), flag)
	}
	if raw, err = jsonx.CanonicalRaw([]byte(text)); err != nil {
		return "", nil, fault.Wrap(fault.Usage, err, "%s %s: what follows = is not JSON: %v", flag, view.OneLine(name), err)
	}
	return name, raw, nil
}

// simInput makes up the required inputs that the user has not given.
func (a *app) simInput(p *plan.Plan, input map[string]any, files []simulate.File) error {
	if len(p.InputSchema) == 0 {
		return nil
	}
	filled, err := withDefaults(input, p.InputSchema)
	if err != nil {
		return err
	}
	maps.Copy(input, filled)
	var hashes []string
	for i := range files {
		hashes = append(hashes, files[i].Hash)
	}
	made := answer.New(a.actions, hashes, nil).Complete(rand.New(rand.NewPCG(1, 1)), p.InputSchema, input)
	var shown []string
	for _, name := range made {
		value, err := jsonx.Canonical(input[name])
		if err != nil {
			return err
		}
		shown = append(shown, view.OneLine(name+"="+view.Cut(string(value), 40)))
	}
	if len(shown) > 0 {
		a.say("made up: %s; --input gives other values", strings.Join(shown, ", "))
	}
	schema, err := jsonschema.Compile(p.InputSchema)
	if err != nil {
		return err
	}
	if bad := schema.Validate(input); len(bad) > 0 {
		return fault.New(fault.InputInvalid, "input%s: %s", bad[0].Pointer, bad[0].Msg)
	}
	return nil
}

// madeUpFile returns the input file of a user who names none.
func madeUpFile() simulate.File {
	data := []byte("[1, 2, 3]\n")
	return simulate.File{Hash: fmt.Sprintf("sha256_%x", sha256.Sum256(data)), Name: "made-up.json", MimeType: "application/json", Data: data}
}

// simFiles reads the input files of the simulated runs.
func (a *app) simFiles(args []string) (list []simulate.File, err error) {
	paths, err := userfile.Expand(args, a.say)
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		f, size, err := userfile.OpenRegular(path)
		if err != nil {
			return nil, err
		}
		file, err := simFileOf(f, path, size)
		_ = f.Close()
		if err != nil {
			return nil, err
		}
		list = append(list, file)
	}
	return list, nil
}

func simFileOf(f *os.File, path string, size int64) (simulate.File, error) {
	if size > simFile {
		return simulate.File{}, fault.New(fault.FileInvalid, "%s is larger than %s, the limit of a file in a simulation", view.OneLine(path), view.Bytes(simFile))
	}
	data := make([]byte, size)
	n, err := f.ReadAt(data, 0)
	if int64(n) < size {
		return simulate.File{}, userfile.OpenError(path, fault.FileNotFound, err)
	}
	mime, err := blob.TypeOf(f, path)
	if err != nil {
		return simulate.File{}, userfile.OpenError(path, fault.FileNotFound, err)
	}
	return simulate.File{Hash: fmt.Sprintf("sha256_%x", sha256.Sum256(data)), Name: filepath.Base(path), MimeType: mime, Data: data}, nil
}

// A simulation plays schedules of one recipe and collects the results.
type simulation struct {
	app             *app
	c               *compiled
	seed, schedules uint64
	again           string // the command that plays one seed, with %d for it
	tally           *simulate.Tally
	stats           simulate.Stats
	played          uint64
	hash            uint64
	broken          *simViolation
}

// replayCommand returns the command that plays one seed, with %d for it.
func replayCommand(path string, flags map[string][]string) string {
	words := []string{"roux", "sim", strings.ReplaceAll(term.ShellQuote(path), "%", "%%"), "--schedules", "1", "--seed", "%d", "--trace"}
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		for _, v := range flags[name] {
			words = append(words, name, strings.ReplaceAll(term.ShellQuote(v), "%", "%%"))
		}
	}
	return strings.Join(words, " ")
}

func (s *simulation) play(ctx context.Context, opt simulate.Options) error {
	player := simulate.NewPlayer(opt)
	said := s.app.now()
	for n := uint64(0); n < s.schedules && s.broken == nil; n++ {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		res, err := player.Play(s.seed + n)
		if err != nil {
			return err
		}
		s.tally.Close()
		s.stats.Add(&res.Stats)
		s.played++
		s.hash += res.Hash
		if res.Err != nil {
			if s.broken, err = violationOf(&res, opt, fmt.Sprintf(s.again, res.Seed)); err != nil {
				return err
			}
		}
		if now := s.app.now(); now.Sub(said) > 5*time.Second {
			said = now
			s.app.say("%d of %d schedules, %d transitions, nothing broken", s.played, s.schedules, s.stats.Transitions)
		}
	}
	return nil
}

func violationOf(res *simulate.Result, opt simulate.Options, replay string) (*simViolation, error) {
	last, _, err := simulate.ReplayTail(opt, res.Seed)
	return &simViolation{Seed: res.Seed, Broken: res.Err.Error(), Version: thisBuild().short(), Replay: replay, Last: last}, err
}

// runs returns the number of runs that ended; these are all runs.
func (s *simulation) runs() (n int64) {
	for _, of := range s.tally.Ends() {
		n += of
	}
	return n
}

func (s *simulation) result() *simulated {
	out := &simulated{
		Recipe: s.c.recipe.Name, Seed: s.seed, Schedules: s.played, Runs: s.runs(), Transitions: s.stats.Transitions,
		Faults: s.stats.FaultCount(), Crashes: s.stats.Crashes, ByFault: map[string]int64{}, Hash: fmt.Sprintf("%016x", s.hash),
		Steps: s.tally.Steps(), Violation: s.broken, Ends: []simEnd{},
	}
	s.stats.EachFault(func(name string, n int64) { out.ByFault[name] = n })
	for end, n := range s.tally.Ends() {
		out.Ends = append(out.Ends, simEnd{end, n})
	}
	slices.SortFunc(out.Ends, func(x, y simEnd) int {
		return cmp.Or(cmp.Compare(y.Runs, x.Runs), cmp.Compare(x.Status, y.Status), cmp.Compare(x.Code, y.Code))
	})
	return out
}

func (a *app) printSimulated(s *simulated) {
	a.text("%s: %s with %d faults and %d crashes, %s, %d transitions\n\n", view.OneLine(s.Recipe),
		view.Count(int(s.Schedules), "schedule"), s.Faults, s.Crashes, view.Count(int(s.Runs), "run"), s.Transitions)
	rows := [][]string{{"ended", "runs", "because of"}}
	for _, e := range s.Ends {
		rows = append(rows, []string{e.Status, fmt.Sprint(e.Runs), e.Code})
	}
	a.text("%s\n", term.Table(rows))
	rows = [][]string{{"step", "attempts of one effect", "completed", "failed", "skipped", "cancelled"}}
	var never []string
	for _, st := range s.Steps {
		tries := ""
		if st.Tries > 0 {
			tries = fmt.Sprintf("up to %d", st.Attempts)
		}
		rows = append(rows, []string{view.OneLine(st.Step), tries, fmt.Sprint(st.Completed), fmt.Sprint(st.Failed), fmt.Sprint(st.Skipped), fmt.Sprint(st.Cancelled)})
		if st.Completed+st.Failed+st.Cancelled == 0 && st.Tries == 0 {
			never = append(never, view.OneLine(st.Step))
		}
	}
	a.text("%s\n", term.Table(rows))
	if len(never) > 0 {
		a.text("never begun: %s\n", strings.Join(never, ", "))
	}
	a.text("An effect that is attempted more than once keeps its effect key; a service that honours it does the work once.\n")
	a.text("Actions were not carried out: their outputs were made up from their schemas. final hash %s\n", s.Hash)
	if s.Violation == nil {
		a.text("nothing was lost, doubled or stranded\n")
		return
	}
	a.text("\nseed %d broke an invariant of Roux %s; the last %d things that happened:\n", s.Violation.Seed, s.Violation.Version, len(s.Violation.Last))
	for _, line := range s.Violation.Last {
		a.text("%s\n", view.OneLine(line))
	}
}
