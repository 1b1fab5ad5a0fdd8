// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
)

// A bundle is a ZIP file that holds one run: manifest.json, plan.json, the
// journal as it is stored (journal.bin) and, for people and other programs, as
// public events (events.jsonl), which import does not read.
const (
	bundleFormat  = "roux-run"
	bundleVersion = 1
	bundleExt     = ".roux.zip"

	// What a bundle may hold, unpacked.
	maxBundlePlan    = 64 << 20
	maxBundleJournal = 256 << 20
)

// A manifest says what a bundle holds.
type manifest struct {
	Format   string `json:"format"`
	Version  int    `json:"version"`
	Run      string `json:"run"`
	Recipe   string `json:"recipe"`
	Status   string `json:"status"`
	Plan     string `json:"plan"` // hash
	Events   uint64 `json:"events"`
	Redacted bool   `json:"redacted"`
}

// An exported is what export says it did.
type exported struct {
	manifest
	File  string `json:"file"`
	Bytes int64  `json:"bytes"`
}

func (a *app) exportCommand() *cobra.Command {
	var out string
	var redact, force bool
	cmd := &cobra.Command{
		Use:   "export RUN",
		Short: "Write a run into one file, to keep or to show to others",
		Long: "Write a run into one file: its plan and its whole journal. `roux import` reads it on another machine, where every command " +
			"that looks at runs works on it. With --redact every text that passed through the run (inputs, outputs, logs, messages) is " +
			"replaced; the recipe, numbers, times and codes stay. Files that the run names are not included.",
		Example: "roux export @last\nroux export @last-failed --redact --out bug.roux.zip",
		Args:    wants(1, 1, "RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.reading(cmd.Context(), func(ctx context.Context, j journal) error {
				head, err := findRun(ctx, j, args[0])
				if err != nil {
					return err
				}
				if out == "" {
					out = head.Run + bundleExt
				}
				done, err := a.export(ctx, j, head, out, redact, force)
				if err != nil {
					return err
				}
				if out != "-" {
					a.show(done, func() {
						a.text("%s: %s, %s events, %s\n", oneLine(done.File), done.Run, fmt.Sprint(done.Events), byteSize(done.Bytes).text())
					})
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVarP(&out, "out", "O", "", "file to write (default RUN"+bundleExt+"); - is standard output")
	cmd.Flags().BoolVar(&redact, "redact", false, "replace every text that passed through the run")
	cmd.Flags().BoolVar(&force, "force", false, "overwrite the file")
	return cmd
}

// export writes the bundle, to standard output or as a file.
func (a *app) export(ctx context.Context, j journal, head store.Head, path string, redact, force bool) (*exported, error) {
	if path == "-" {
		if _, terminal := a.stdoutColumns(); terminal {
			return nil, fault.New(fault.Usage, "a bundle is no text for a terminal: name a file with --out, or pipe it on")
		}
		return nil, writeBundle(ctx, j, head, a.stdout, redact)
	}
	root, base, err := openBeside(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	d, err := newDraft(root, base, path, 0o600, force)
	if err != nil {
		return nil, err
	}
	defer d.drop()
	if err := writeBundle(ctx, j, head, d, redact); err != nil {
		return nil, err
	}
	info, err := d.f.Stat()
	if err != nil {
		return nil, writeError(path, err)
	}
	if err := d.place(); err != nil {
		return nil, err
	}
	done := &exported{manifest: newManifest(head, redact), File: path, Bytes: info.Size()}
	done.Events, err = lastEvent(ctx, j, head.Key)
	return done, err
}

func newManifest(head store.Head, redacted bool) manifest {
	return manifest{Format: bundleFormat, Version: bundleVersion, Run: head.Run, Recipe: head.Recipe,
		Status: head.Status, Plan: head.PlanHash, Redacted: redacted}
}

func writeBundle(ctx context.Context, j journal, head store.Head, w io.Writer, redact bool) error {
	p, err := planOf(ctx, j, head)
	if err != nil {
		return err
	}
	text, err := p.Encode()
	if err != nil {
		return err
	}
	z := zip.NewWriter(w)
	entry := func(name string) (io.Writer, error) {
		return z.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate})
	}
	into, err := entry("plan.json")
	if err == nil {
		_, err = into.Write(text)
	}
	if err != nil {
		return err
	}
	m := newManifest(head, redact)
	var lines bytes.Buffer
	if into, err = entry("journal.bin"); err != nil {
		return err
	}
	err = eachEvent(ctx, j, head.Key, 0, func(ev *machine.Event) error {
		if redact {
			if ev, err = redacted(ev); err != nil {
				return err
			}
		}
		m.Events = ev.Seq
		if err := writeJSON(&lines, machine.Render(p, head.Run, ev), false); err != nil {
			return err
		}
		_, err := into.Write(machine.AppendFrame(nil, []machine.Event{*ev}))
		return err
	})
	if err != nil {
		return err
	}
	for _, part := range []struct {
		name string
		fill func(io.Writer) error
	}{
		{"events.jsonl", func(w io.Writer) error { _, err := w.Write(lines.Bytes()); return err }},
		{"manifest.json", func(w io.Writer) error { return writeJSON(w, m, true) }},
	} {
		if into, err = entry(part.name); err != nil {
			return err
		}
		if err := part.fill(into); err != nil {
			return err
		}
	}
	return z.Close()
}

// hidden stands in place of a text that --redact takes out.
const hidden = "[redacted]"

// redacted is an event without the texts that passed through the run. What the
// fold relies on stays: kinds, numbers, shapes of values, names of signals.
func redacted(ev *machine.Event) (*machine.Event, error) {
	out := *ev
	switch ev.Kind {
	case machine.EvRunSignalled, machine.EvNodeWaiting, machine.EvRunRetried, machine.EvNodeOpened, machine.EvContract,
		machine.EvRunContract, machine.EvNodeBlocked, machine.EvRunCompleted:
		// Text is a name of the recipe or of Roux.
	default:
		if ev.Text != "" {
			out.Text = hidden
		}
	}
	if len(ev.Data) == 0 {
		return &out, nil
	}
	var err error
	if ev.Kind == machine.EvRunStarted {
		out.Data, err = redactedStart(ev.Data)
	} else {
		var v any
		if v, err = jsonx.Decode(ev.Data, jsonx.Limits{Bytes: len(ev.Data) + 1}); err == nil {
			out.Data, err = jsonx.Canonical(hide(v))
		}
	}
	if err != nil {
		return nil, fault.Wrap(fault.StoreCorrupt, err, "event %d holds a value that cannot be read: %v", ev.Seq, err)
	}
	return &out, nil
}

// redactedStart hides what the user gave, and keeps what the fold needs.
func redactedStart(data []byte) ([]byte, error) {
	var st machine.Start
	if err := json.Unmarshal(data, &st); err != nil {
		return nil, err
	}
	for k, v := range st.Parameters {
		st.Parameters[k] = hide(v)
	}
	for k := range st.Labels {
		st.Labels[k] = hidden
	}
	for i := range st.Files {
		st.Files[i].Name, st.Files[i].Extended = hidden, nil
	}
	if st.Correlation != st.Run {
		st.Correlation = hidden
	}
	return json.Marshal(st)
}

// hide replaces every text in a value.
func hide(v any) any {
	switch v := v.(type) {
	case string:
		return hidden
	case []any:
		for i := range v {
			v[i] = hide(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = hide(v[k])
		}
	}
	return v
}

func (a *app) importCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "import FILE",
		Short: "Read a run that export wrote, to look at it here",
		Long: "Read a run that export wrote, to look at it here: runs get, events, trace, explain, diff and replay work on it. Nothing of it " +
			"is carried out. A run that had not ended is set apart. Importing the same run again changes nothing.",
		Example: "roux import bug.roux.zip\nroux trace @last",
		Args:    wants(1, 1, "FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := readBundle(args[0])
			if err != nil {
				return err
			}
			dir, err := a.dataDir()
			if err != nil {
				return err
			}
			st, err := a.openStore(cmd.Context(), dir)
			if err != nil {
				return err
			}
			state, err := b.commit(cmd.Context(), st)
			if err = errors.Join(err, storageError(dir, st.Close())); err != nil {
				return err
			}
			a.show(map[string]any{"id": b.Run, "recipe": b.Recipe, "status": b.run.Status().String(), "events": b.run.Last(), "state": state}, func() {
				a.text("%s %s: %s, %s, %d events\n", b.Run, state, oneLine(b.Recipe), b.run.Status(), b.run.Last())
			})
			return nil
		},
	}
}

// A bundle is one that has been read and holds together.
type bundle struct {
	manifest
	plan     *plan.Plan
	planText []byte
	journal  []byte
	run      *machine.Run // the fold of the journal
	piece    int          // bytes of the journal that one commit takes
	created  int64
	ended    int64
}

// readBundle reads a bundle and folds it, trusting nothing in it.
func readBundle(path string) (b *bundle, err error) {
	bad := func(err error, what string) error {
		return fault.Wrap(fault.FileInvalid, err, "%s is no bundle that roux export wrote: %s", path, what)
	}
	f, err := openFile(path, fault.FileNotFound)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fileError(path, fault.FileNotFound, err)
	}
	z, err := zip.NewReader(f, info.Size())
	if err != nil {
		return nil, bad(err, err.Error())
	}
	b = &bundle{piece: 1 << 20}
	text, err := unpack(z, "manifest.json", 64<<10)
	if err == nil {
		err = json.Unmarshal(text, &b.manifest)
	}
	if err != nil || b.Format != bundleFormat {
		return nil, bad(err, "its manifest.json is missing or not ours")
	}
	if b.Version != bundleVersion {
		return nil, bad(nil, fmt.Sprintf("it has version %d of the form, this release reads %d", b.Version, bundleVersion))
	}
	if !isRunID(b.Run) {
		return nil, bad(nil, fmt.Sprintf("%q is no name of a run", cut(b.Run, 40)))
	}
	if b.planText, err = unpack(z, "plan.json", maxBundlePlan); err != nil {
		return nil, bad(err, err.Error())
	}
	if b.journal, err = unpack(z, "journal.bin", maxBundleJournal); err != nil {
		return nil, bad(err, err.Error())
	}
	if err := b.fold(); err != nil {
		return nil, bad(err, err.Error())
	}
	return b, nil
}

// isRunID says that a text has the form of the ids that Roux gives. They become
// names of files and stand on terminals as they are.
func isRunID(s string) bool {
	id, ok := strings.CutPrefix(s, "run_")
	return ok && len(id) == 26 && strings.Trim(id, "0123456789ABCDEFGHJKMNPQRSTVWXYZ") == ""
}

func unpack(z *zip.Reader, name string, most int64) ([]byte, error) {
	f, err := z.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if int64(len(data)) > most {
		return nil, fmt.Errorf("%s has more than %s", name, byteSize(most).text())
	}
	return data, nil
}

// fold checks plan and journal by doing with them what every command will.
func (b *bundle) fold() (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("its journal does not fit its plan: %v", v)
		}
	}()
	if b.plan, err = plan.Decode(b.planText); err != nil {
		return err
	}
	if err := b.plan.Check(); err != nil {
		return err
	}
	if b.plan.Hash().String() != b.Plan {
		return errors.New("its plan is not the one the manifest names")
	}
	b.run = machine.NewRun(machine.Prepare(b.plan))
	view := newView(b.plan, b.Run)
	next := uint64(1)
	err = machine.EachEvent(b.journal, func(ev *machine.Event) error {
		if ev.Seq != next {
			return fmt.Errorf("event %d follows event %d", ev.Seq, next-1)
		}
		if next++; b.created == 0 {
			b.created = ev.At
		}
		if ev.Step >= 0 && (int(ev.Step) >= len(b.plan.Steps) || machine.StepPath(b.plan, ev.Ref()) == "") {
			return fmt.Errorf("event %d is about a step that the plan does not have", ev.Seq)
		}
		if err := b.run.Apply(ev); err != nil {
			return err
		}
		_ = machine.Render(b.plan, b.Run, ev)
		return view.apply(ev)
	})
	if err != nil {
		return err
	}
	if start := b.run.Start(); start == nil || start.Run != b.Run {
		return errors.New("its journal is not that of the run the manifest names")
	}
	b.ended = view.Ended
	return nil
}

// importing is why a run is set apart until all of it is stored.
const importing = "its import was interrupted: import it again"

// commit stores the run, in several transitions when it is long: until the last
// one it is set apart, so that nothing ever carries on half of it.
func (b *bundle) commit(ctx context.Context, st store.Store) (state string, err error) {
	key := store.Key{Account: account, Run: b.Run}
	done, err := b.have(ctx, st, key)
	switch {
	case errors.Is(err, fault.RunNotFound):
	case err != nil:
		return "", err
	case done == b.run.Last():
		return "unchanged", nil
	}
	epoch, err := st.Own(ctx)
	if err != nil {
		return "", err
	}
	head := store.Head{Key: key, Recipe: b.Recipe, PlanHash: b.Plan, Status: b.run.Status().String(), Created: b.created,
		Updated: b.created, Ended: b.ended, Used: b.run.Used(), Failures: b.run.HasFailures()}
	if b.ended != 0 {
		head.Code, head.Message = b.run.Failure()
	}
	if b.ended == 0 {
		head.Quarantine = "imported to be looked at; it had not ended where it ran"
	}
	unfinished := head
	unfinished.Quarantine = importing
	t := store.Transition{Key: key, Epoch: epoch}
	flush := func(h store.Head) error {
		t.Head = &h
		if t.First == 1 {
			t.PlanHash, t.Plan = b.Plan, b.planText
		}
		verdicts, err := st.Commit(ctx, []store.Transition{t})
		if err == nil {
			err = verdicts[0].Err
		}
		t = store.Transition{Key: key, Epoch: epoch}
		return err
	}
	err = machine.EachEvent(b.journal, func(ev *machine.Event) error {
		if ev.Seq <= done {
			return nil
		}
		if len(t.Frames) > b.piece {
			if err := flush(unfinished); err != nil {
				return err
			}
		}
		if t.First == 0 {
			t.First = ev.Seq
		}
		t.Last = ev.Seq
		t.Frames = machine.AppendFrame(t.Frames, []machine.Event{*ev})
		return nil
	})
	if err != nil {
		return "", err
	}
	return "imported", flush(head)
}

// have says how many events of the run are stored already, when they are its own.
func (b *bundle) have(ctx context.Context, st store.Store, key store.Key) (uint64, error) {
	head, err := st.Head(ctx, key)
	if err != nil {
		return 0, err
	}
	last, same := uint64(0), head.PlanHash == b.Plan
	var mine [][]byte
	err = machine.EachEvent(b.journal, func(ev *machine.Event) error {
		mine = append(mine, machine.AppendFrame(nil, []machine.Event{*ev}))
		return nil
	})
	if err != nil {
		return 0, err
	}
	err = eachEvent(ctx, st, key, 0, func(ev *machine.Event) error {
		last = ev.Seq
		same = same && last <= uint64(len(mine)) && slices.Equal(mine[last-1], machine.AppendFrame(nil, []machine.Event{*ev}))
		return nil
	})
	if err == nil && (!same || last < uint64(len(mine)) && head.Quarantine != importing) {
		err = fault.New(fault.Conflict, "there is another run %s here: import into an empty directory with --data DIR", b.Run)
	}
	return last, err
}
