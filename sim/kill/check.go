// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/roux-engine/roux/sim/effects"
)

// A history is one run's journal at the end of a round.
type history struct {
	id, tag, recipe string
	step            string // of its parent
	events          []line
	text            []string // the events as printed
	status          string   // the last of ends
	ends            []string // the statuses with which it ended: several if it was retried
	code            string   // error code of the run
	outputs         json.RawMessage
	children        []*history
	parent          *history
	before          []*history // runs of earlier tries of the step that has started it
	after           *history   // the run of the next try
}

// hurt reports whether the run or one above it failed because a step was lost too often, or with a code that is
// tolerated.
func (h *history) hurt(tolerate []string) bool {
	return h != nil && (h.code == "INTERRUPTED" || slices.Contains(tolerate, h.code) || h.parent.hurt(tolerate))
}

// triedAfter reports whether the run is of another try of the step that has started an earlier one, which
// has failed.
func (h *history) triedAfter(last *history) bool {
	return h.parent != nil && h.parent == last.parent && h.step == last.step && last.status == "failed"
}

// compare compares the three records: the journal as `roux events` prints it, the
// recorder's effects, and what the client was shown. It returns the contradictions.
func (r *round) compare() (problems []string, err error) {
	bad := func(format string, args ...any) {
		problems = append(problems, r.name+": "+fmt.Sprintf(format, args...))
	}
	runs, err := r.list()
	if err != nil {
		return nil, err
	}
	byID, byTag, used := map[string]*history{}, map[string]*history{}, map[string]int64{}
	for _, run := range runs {
		tree, err := r.readTree(run.ID, bad)
		if err != nil {
			return nil, err
		}
		for _, h := range tree {
			byID[h.id] = h
			switch last := byTag[h.tag]; {
			case last == nil:
			case h.triedAfter(last):
				h.before, last.after = append(slices.Clone(last.before), last), h
			default:
				bad("the runs %s and %s were both begun by one command or step", h.id, last.id)
			}
			byTag[h.tag] = h
			used[run.ID] += r.checkCharges(h, bad)
		}
		r.runs.Add(1)
		r.children.Add(int64(len(tree) - 1))
	}
	for _, h := range byID {
		r.checkChildren(h, byID, bad)
	}
	if err := r.checkCredits(used, bad); err != nil {
		return nil, err
	}
	if err := r.checkSequences(byID, bad); err != nil {
		return nil, err
	}
	r.checkShown(byID, bad)
	r.checkStarts(runs, byTag, bad)
	all, err := r.rec.Since(r.offset, r.name+".")
	if err != nil {
		return nil, err
	}
	r.effects.Add(int64(len(all)))
	steps := map[string]map[string][]effects.Effect{}
	for _, e := range all {
		if byTag[e.Tag] == nil {
			bad("step %s of %s had an effect, and no journal knows the run", e.At, e.Tag)
			continue
		}
		if steps[e.Tag] == nil {
			steps[e.Tag] = map[string][]effects.Effect{}
		}
		steps[e.Tag][e.At] = append(steps[e.Tag][e.At], e)
	}
	for _, tag := range slices.Sorted(maps.Keys(byTag)) {
		h := byTag[tag]
		for _, h := range append(slices.Clone(h.before), h) {
			r.checkSettled(h, bad)
		}
		r.checkEffects(h, steps[tag], bad)
	}
	if err := r.checkFiles(byID, bad); err != nil {
		return nil, err
	}
	if r.bystanders != nil {
		if err := r.bystanders.Check(bad); err != nil {
			return nil, err
		}
		r.compared.Add(1)
		r.links.Add(r.bystanders.Links())
	}
	return problems, r.checkDoctor(bad)
}

// readTree reads the journals of a run and of the runs below it.
func (r *round) readTree(id string, bad func(string, ...any)) (tree []*history, err error) {
	h, err := r.read(id, bad)
	if err != nil {
		return nil, err
	}
	tree = append(tree, h)
	known := map[string]bool{}
	for _, l := range h.events {
		if l.Type != "run.child_started" || known[l.Payload.Child] { // it went on
			continue
		}
		known[l.Payload.Child] = true
		below, err := r.readTree(l.Payload.Child, bad)
		if err != nil {
			return nil, err
		}
		below[0].parent, below[0].step = h, l.Payload.Step
		h.children = append(h.children, below[0])
		tree = append(tree, below...)
	}
	return tree, nil
}

// read reads a run's journal, and has roux replay it.
func (r *round) read(id string, bad func(string, ...any)) (*history, error) {
	out, talk, code, err := r.c.output("events", id, "-o", "jsonl")
	if err != nil {
		return nil, err
	}
	if code != 0 {
		return nil, fmt.Errorf("%s: events %s: exit code %d\n%s", r.name, id, code, talk)
	}
	h := &history{id: id}
	for text := range strings.Lines(out) {
		text = strings.TrimSuffix(text, "\n")
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			return nil, fmt.Errorf("%s: events %s: %q: %w", r.name, id, text, err)
		}
		if l.EventID != uint64(len(h.events)+1) {
			bad("run %s: event %d follows event %d (I14)", id, l.EventID, len(h.events))
		}
		h.events, h.text = append(h.events, l), append(h.text, text)
		switch l.Type {
		case "run.started":
			var p struct {
				Tag string `json:"tag"`
			}
			if json.Unmarshal(l.Payload.Parameters, &p) == nil {
				h.tag, h.recipe = p.Tag, l.Payload.Recipe
			}
		case "run.completed", "run.failed", "run.cancelled", "run.expired":
			h.status, h.outputs, h.code = l.Payload.Status, l.Payload.Outputs, ""
			h.ends = append(h.ends, h.status)
			if l.Payload.Error != nil {
				h.code = l.Payload.Error.Code
			}
		}
	}
	out, talk, code, err = r.c.output("replay", id, "-o", "json")
	if err != nil {
		return nil, err
	}
	var folded struct {
		Same   bool   `json:"same"`
		Status string `json:"status"`
	}
	if json.Unmarshal([]byte(out), &folded) != nil || !folded.Same || folded.Status != h.status {
		bad("run %s is %q and its replay prints %.400s %s (exit code %d, I2)", id, h.status, out, talk, code)
	}
	return h, nil
}

// checkShown checks that everything the client was shown is still true (I1).
func (r *round) checkShown(byID map[string]*history, bad func(string, ...any)) {
	for run, events := range r.c.shown {
		h := byID[run]
		if h == nil {
			bad("run %s was shown and is missing now (I1)", run)
			continue
		}
		for n, text := range events {
			if n > uint64(len(h.text)) {
				bad("event %d of run %s was shown and is missing now (I1): %s", n, run, text)
			} else if !sameJSON(text, h.text[n-1]) {
				bad("event %d of run %s was shown as\n  %s\nand is now\n  %s (I1)", n, run, text, h.text[n-1])
			}
		}
	}
	for run, res := range r.c.results {
		if h := byID[run]; h == nil || h.status != res.Status || !sameJSON(string(orNull(h.outputs)), string(orNull(res.Outputs))) {
			bad("run %s was shown to have ended %s with %s, and the journal differs (I1)", run, res.Status, res.Outputs)
		}
	}
	for run := range r.c.signalled {
		if h := byID[run]; h == nil || !slices.ContainsFunc(h.events, func(l line) bool { return l.Type == "run.signalled" }) {
			bad("run %s was shown to have its signal, and the journal has none (I1)", run)
		}
	}
}

// checkSettled checks how a run ended, and that each of its steps settled once.
func (r *round) checkSettled(h *history, bad func(string, ...any)) {
	want := "completed"
	if h.recipe == "undo" || h.recipe == "broken" {
		want = "failed"
	}
	lost := map[string]int{}
	settled := map[string]string{}
	ends := 0
	for _, l := range h.events {
		step := l.Payload.Step
		switch l.Type {
		case "node.retried":
			// Attempts that an orderly stop handed back are not counted as lost (F45).
			if l.Payload.Cause == causeLost && !l.Payload.HandedBack {
				lost[step]++
				r.lostAttempts++
				r.lost.Add(1)
			}
		case "node.completed", "node.failed", "node.skipped", "node.cancelled":
			if before := settled[step]; before != "" {
				bad("step %s of run %s settled twice: %s, then %s (I3)", step, h.id, before, l.Type)
			}
			settled[step] = l.Type
		case "run.completed", "run.failed", "run.cancelled", "run.expired":
			ends++
		case "run.retried": // it goes on: what has completed in it stays
			if ends != 1 || h.recipe != "resumed" {
				bad("run %s of %s has ended %d times, and goes on (I7)", h.id, h.recipe, ends)
			}
			ends = 0
			maps.DeleteFunc(settled, func(_, how string) bool { return how != "node.completed" })
		}
	}
	if ends != 1 {
		bad("run %s has ended %d times, want once (I7, I6)", h.id, ends)
	}
	if h.status == want && (want != "failed" || h.code == "STEP_FAILED") {
		if want == "completed" && !sameJSON(string(h.outputs), expected[h.recipe]) {
			bad("run %s of %s gave %s, want %s", h.id, h.recipe, h.outputs, expected[h.recipe])
		}
		return
	}
	if h.after != nil && h.status == "failed" && h.code == "SERVICE_UNAVAILABLE" {
		return // the recorder has refused its effect, and its step was tried again
	}
	for step, n := range lost {
		if r.onlyKills && n > r.killed {
			bad("step %s of run %s lost %d attempts to %d kills: what a stop handed back counts as lost (F45)", step, h.id, n, r.killed)
		}
	}
	// A step may be lost three times; it fails the fourth time, and with it the steps that
	// run its run.
	if h.code == "INTERRUPTED" && (r.remote || slices.Max(append(slices.Collect(maps.Values(lost)), 0)) >= 3 ||
		slices.ContainsFunc(h.children, func(c *history) bool { return c.code == h.code })) {
		return
	}
	// The runs of the steps beside such a step are cancelled.
	if h.code == "EXECUTION_CANCELLED" && h.parent.hurt(r.tolerate) || slices.Contains(r.tolerate, h.code) {
		return
	}
	bad("run %s of %s ended %s %s, want %s", h.id, h.recipe, h.status, h.code, want)
}

// expected are the outputs of each recipe.
var expected = map[string]string{
	"mixed":   `{"doubled":[2,4,6,8,10],"last":"last"}`,
	"chain":   `{"count":16}`,
	"wide":    `{"count":24,"last":"join"}`,
	"gate":    `{"said":"yes","last":"after"}`,
	"crowd":   `{"count":100}`,
	"kept":    `{"last":"slow"}`,
	"late":    `{"last":"slow"}`,
	"bulky":   `{"count":30,"last":"last"}`,
	"nested":  `{"ends":["mark","mark","mark"]}`,
	"middle":  `{"last":"mark"}`,
	"leaf":    `{"last":"mark"}`,
	"mosaic":  `{"sheets":[["given","text/one.txt"],["given","text/one.txt"]],"patient":"patient","resumed":"grain","last":"last"}`,
	"sheet":   `{"files":["given","text/one.txt"]}`,
	"grain":   `{"text":"grain"}`,
	"patient": `{"text":"patient"}`,
	"resumed": `{"text":"grain"}`,
	"within":  `{"last":"mark"}`,
	"farm":    `{"count":6}`,
	"spill":   `{"given":1000,"last":"last","loads":[1500000,1500000,1500000,1500000,1500000,1500000]}`,
}

// causeLost is the cause of a retry of an attempt whose process has died.
const causeLost = "lost"

// A try is the attempts of a step that share an effect key: the outcome of all but the
// last of them is unknown.
type try struct {
	attempts int
	done     bool // the step completed with it
}

// checkEffects compares a run's effects with its attempts. Each effect belongs to an
// attempt that had begun in the journal. Attempts share a key only after one whose
// outcome was unknown. A completed step had its effect.
func (r *round) checkEffects(h *history, effects map[string][]effects.Effect, bad func(string, ...any)) {
	tries := map[string][]try{}
	open := map[string]bool{} // the next attempt has the same key as the last one
	events := slices.Clone(h.events)
	for _, before := range slices.Backward(h.before) { // their runs have the same tag
		events = append(append(slices.Clone(before.events), line{Type: "run.retried"}), events...)
	}
	for _, l := range events {
		step, p := l.Payload.Step, &l.Payload
		if l.Type == "run.retried" && len(h.before) > 0 {
			clear(open) // another run has other keys
		}
		if p.Kind != "action" {
			continue
		}
		switch l.Type {
		case "node.started":
			if n := len(tries[step]); n > 0 && open[step] {
				tries[step][n-1].attempts++
			} else {
				tries[step] = append(tries[step], try{attempts: 1})
			}
			open[step] = true
		case "node.retried", "node.failed":
			open[step] = p.OutcomeUnknown
		case "node.completed":
			if n := len(tries[step]); n > 0 {
				tries[step][n-1].done = true
			}
			if strings.HasSuffix(step, ".job") {
				r.jobSteps++
			}
		}
	}
	if r.remote { // several workers may have had the task of one attempt
		for _, list := range tries {
			for i := range list {
				list[i].attempts = math.MaxInt
			}
		}
	}
	for step, seen := range effects {
		if r.remote {
			seen = byKey(seen)
		}
		if why := match(tries[step], seen); why != "" {
			bad("step %s of run %s: %s\n  effects %v\n  tries %v", step, h.id, why, seen, tries[step])
		}
		keys := map[string]bool{}
		for _, e := range seen {
			if keys[e.Key] {
				r.repeats.Add(1)
			}
			keys[e.Key] = true
		}
	}
	for step, list := range tries {
		if n := len(list); list[n-1].done && hasEffect(h.recipe, step) && len(effects[step]) == 0 {
			bad("step %s of run %s is completed and had no effect", step, h.id)
		}
	}
}

// byKey sorts the effects of a step by the first one with the same key: a worker that was stopped may
// go on with a task that others have ended long ago.
func byKey(seen []effects.Effect) []effects.Effect {
	first := map[string]int{}
	for i, e := range seen {
		if _, ok := first[e.Key]; !ok {
			first[e.Key] = i
		}
	}
	sorted := slices.Clone(seen)
	slices.SortStableFunc(sorted, func(a, b effects.Effect) int { return first[a.Key] - first[b.Key] })
	return sorted
}

// hasEffect reports whether a step of a recipe has an effect.
func hasEffect(recipe, step string) bool {
	switch recipe {
	case "mixed":
		return !strings.HasSuffix(step, ".fetch") && !strings.HasSuffix(step, ".page")
	case "bulky":
		return !strings.HasSuffix(step, ".text")
	case "farm":
		return strings.HasSuffix(step, ".mark")
	case "sheet", "grain", "patient", "broken", "within":
		return step == "mark"
	case "spill":
		return strings.HasSuffix(step, ".mark") || step == "last"
	}
	return true
}

// match compares the effects of a step, in the order in which they happened, with its
// tries.
func match(tries []try, seen []effects.Effect) string {
	type group struct {
		key string
		n   int
	}
	var groups []group
	for _, e := range seen {
		if e.Key == "" {
			return "an effect without a key"
		}
		if n := len(groups); n > 0 && groups[n-1].key == e.Key {
			groups[n-1].n++
			continue
		}
		if slices.ContainsFunc(groups, func(g group) bool { return g.key == e.Key }) {
			return "an older key came again after a new one (I4)"
		}
		groups = append(groups, group{e.Key, 1})
	}
	if n := len(tries); n > 0 && tries[n-1].done {
		// The completed try is the last one, and the last effect belongs to it.
		if len(groups) == 0 || groups[len(groups)-1].n > tries[n-1].attempts {
			return "the step completed, and its last effects are not those of its last attempts (I3, I4)"
		}
		groups, tries = groups[:len(groups)-1], tries[:n-1]
	}
	i := 0
	for _, g := range groups {
		for i < len(tries) && tries[i].attempts < g.n {
			i++
		}
		if i == len(tries) {
			return "more effects than attempts that the journal had begun (I1), or a key that was not kept (I4)"
		}
		i++
	}
	return ""
}

var hashes = regexp.MustCompile(`sha256_[0-9a-f]{64}`)

// checkFiles checks that the content of every file fits its name, and that every file
// named in an event exists.
func (r *round) checkFiles(byID map[string]*history, bad func(string, ...any)) error {
	have := map[string]bool{}
	root := filepath.Join(r.c.dir, "files")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !hashes.MatchString(d.Name()) || len(d.Name()) != len("sha256_")+64 {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		sum := sha256.New()
		if _, err := io.Copy(sum, f); err != nil {
			return err
		}
		if got := "sha256_" + hex.EncodeToString(sum.Sum(nil)); got != d.Name() {
			bad("file %s holds %s", path, got)
		}
		have[d.Name()] = true
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, h := range byID {
		for i, l := range h.events {
			for _, hash := range filesOf(l.Type, h.text[i]) {
				if r.named.Add(1); !have[hash] {
					bad("event %d (%s %s) of run %s names file %s, which is not there", l.EventID, l.Type, l.Payload.Step, h.id, hash)
				}
			}
		}
	}
	return nil
}

// filesOf are the files named in an event: input files, files in outputs, and large
// values, each of which is a file. The hash of a step's input is not a file.
func filesOf(kind, text string) (hashes []string) {
	field := fileField
	if kind == "run.started" {
		field = givenField
	}
	for _, re := range []*regexp.Regexp{field, largeValue} {
		for _, m := range re.FindAllStringSubmatch(text, -1) {
			hashes = append(hashes, m[1])
		}
	}
	return hashes
}

var (
	givenField = regexp.MustCompile(`"hash":"(sha256_[0-9a-f]{64})"`)
	fileField  = regexp.MustCompile(`"file":"(sha256_[0-9a-f]{64})"`)
	largeValue = regexp.MustCompile(`\{"\$roux":"ref"[^{}]*?"hash":"(sha256_[0-9a-f]{64})"`)
)

// checkDoctor runs `roux doctor`.
func (r *round) checkDoctor(bad func(string, ...any)) error {
	out, talk, code, err := r.c.output("doctor", "-o", "json")
	if err != nil {
		return err
	}
	var checks []struct{ Check, Status, Text string }
	if err := json.Unmarshal([]byte(out), &checks); err != nil {
		return fmt.Errorf("%s: doctor: exit code %d: %w\n%s%s", r.name, code, err, out, talk)
	}
	// Findings about the machine (an open address range, a slow or full disk) and
	// about the build (-tags) are ignored.
	known := false
	for _, c := range checks {
		switch {
		case c.Status == "ok":
		case c.Check == "runs" && c.Status == "note" && r.stands:
		case c.Check == "egress" || c.Check == "disk" || c.Check == "space" || c.Check == "guards":
			known = true
		default:
			bad("doctor: %s %s: %s", c.Check, c.Status, c.Text)
		}
	}
	if code != 0 && !known {
		bad("doctor: exit code %d\n%s", code, talk)
	}
	return nil
}

func sameJSON(a, b string) bool {
	if a == b {
		return true
	}
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && reflect.DeepEqual(x, y)
}

func orNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("null")
	}
	return raw
}
