// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/builtin"
	"github.com/roux-engine/roux/internal/bundle"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/picture"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
	"github.com/roux-engine/roux/internal/term"
	"github.com/roux-engine/roux/internal/view"
)

const bundled = `name: bundled
inputSchema: {type: object, properties: {secret: {type: string}}}
steps:
  - {id: talk, action: {name: chatty, parameters: {}}, retryPolicy: {maxAttempts: 2, initialDelay: 1ms}}
  - id: each
    loop: {over: '[input.secret, "y"]', as: x, steps: [{id: inner, transform: {expression: x + "!", outputBinding: v}}]}
  - id: check
    condition: {expression: size(input.secret) > 3, then: [{id: yes, transform: {expression: '1', outputBinding: one}}]}
  - {id: stop, fail: {code: STEP_FAILED, message: 'no more of {{ input.secret }}'}}
`

// exportedBundle runs a recipe and exports it.
func exportedBundle(t *testing.T, flags ...string) []byte {
	t.Helper()
	dir := t.TempDir()
	run := func(want int, args ...string) string {
		var out, errs bytes.Buffer
		code := execute(context.Background(), append(args, "--data", filepath.Join(dir, "data")), strings.NewReader(""), &out, &errs,
			append(builtin.Actions(builtin.Config{}), testActions()...))
		if code != want {
			t.Fatalf("roux %v: exit %d\n%s", args, code, errs.String())
		}
		return out.String()
	}
	file, out := filepath.Join(dir, "r.yaml"), filepath.Join(dir, "b.zip")
	if err := os.WriteFile(file, []byte(bundled), 0o600); err != nil {
		t.Fatal(err)
	}
	run(fault.ExitFailed, "run", file, "-q", "--input", "secret=hush-hush")
	run(fault.ExitOK, append([]string{"export", "@last", "--out", out}, flags...)...)
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// parts returns the members of a bundle by name.
func parts(t *testing.T, data []byte) map[string][]byte {
	t.Helper()
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	m := map[string][]byte{}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		if m[f.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// pack makes a bundle of the members with correct checksums, as a forger who knows the
// format would.
func pack(t *testing.T, m map[string][]byte) string {
	t.Helper()
	var about bundle.Manifest
	if json.Unmarshal(m["manifest.json"], &about) == nil {
		about.Members = map[string]bundle.Member{}
		for name, data := range m {
			if h := sha256.Sum256(data); name != "manifest.json" {
				about.Members[name] = bundle.Member{Size: int64(len(data)), SHA256: hex.EncodeToString(h[:])}
			}
		}
		var err error
		if about.Sum, err = about.Checksum(); err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		if err := writeJSON(&text, about, true); err != nil {
			t.Fatal(err)
		}
		m = maps.Clone(m)
		m["manifest.json"] = text.Bytes()
	}
	return packAsIs(t, m)
}

// packAsIs makes a bundle of the members without changing the manifest. Only the
// checksum at the end of the bundle is computed.
func packAsIs(t *testing.T, m map[string][]byte) string {
	t.Helper()
	var buf bytes.Buffer
	z := zip.NewWriter(&buf)
	for name, data := range m {
		w, err := z.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(z.SetComment(strings.Repeat("0", bundle.ChecksumBytes)), z.Close()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "b.zip")
	if err := os.WriteFile(path, sealed(buf.Bytes()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A redacted bundle holds no text that passed through the run, anywhere; one
// that is not redacted does.
func TestExportRedacts(t *testing.T) {
	secrets := []string{"hush-hush", "secret-of-the-output", "once upon", "looking around", "not at the first try"}
	for _, tt := range []struct {
		flags []string
		want  bool
	}{{nil, true}, {[]string{"--redact"}, false}} {
		m := parts(t, exportedBundle(t, tt.flags...))
		for _, s := range secrets {
			for _, name := range []string{"journal.bin", "events.jsonl"} {
				if got := bytes.Contains(m[name], []byte(s)); got != tt.want {
					t.Errorf("export %v: %s holds %q: %v", tt.flags, name, s, got)
				}
			}
		}
		b, err := readBundle(pack(t, m), false)
		if err != nil || b.Redacted == tt.want || b.Events != b.State.Last() {
			t.Errorf("export %v cannot be read again: %v", tt.flags, err)
		}
	}
}

// F20, A31: importing a bundle of any content fails, or yields a run that every command
// can show. Nothing panics or hangs.
func TestF20_HostileBundles(t *testing.T) {
	if testing.Short() {
		t.Skip("one process after the other: the race detector has nothing to see here")
	}
	good := parts(t, exportedBundle(t))
	for name, change := range map[string]func(m map[string][]byte){
		"no manifest":      func(m map[string][]byte) { delete(m, "manifest.json") },
		"no plan":          func(m map[string][]byte) { delete(m, "plan.json") },
		"no journal":       func(m map[string][]byte) { delete(m, "journal.bin") },
		"an empty journal": func(m map[string][]byte) { m["journal.bin"] = nil },
		"another format":   func(m map[string][]byte) { m["manifest.json"] = []byte(`{"format":"tar"}`) },
		"another run's journal": func(m map[string][]byte) {
			m["manifest.json"] = bytes.Replace(m["manifest.json"], []byte("run_"), []byte("run_Z"), 1)
		},
		"a newer version": func(m map[string][]byte) {
			m["manifest.json"] = bytes.Replace(m["manifest.json"], []byte(`"version": 2`), []byte(`"version": 3`), 1)
		},
		"a plan of its own": func(m map[string][]byte) {
			m["plan.json"] = bytes.Replace(m["plan.json"], []byte("input.secret"), []byte("input.Secret"), 1)
		},
		"a cut journal frame": func(m map[string][]byte) { m["journal.bin"] = m["journal.bin"][:len(m["journal.bin"])-3] },
		"events twice": func(m map[string][]byte) {
			m["journal.bin"] = append(bytes.Clone(m["journal.bin"]), m["journal.bin"]...)
		},
		"a manifest bomb": func(m map[string][]byte) { m["manifest.json"] = bytes.Repeat([]byte(" "), 1<<20) },
	} {
		m := map[string][]byte{}
		for k, v := range good {
			m[k] = v
		}
		change(m)
		if _, err := readBundle(pack(t, m), false); fault.CodeOf(err) != fault.FileInvalid {
			t.Errorf("%s: %v, want FILE_INVALID", name, err)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	read := 0
	for i := range 1_200 {
		m := map[string][]byte{}
		for k, v := range good {
			m[k] = v
		}
		part := []string{"plan.json", "journal.bin", "journal.bin"}[i%3]
		data := bytes.Clone(m[part])
		for range 1 + r.IntN(3) {
			data[r.IntN(len(data))] ^= 1 << r.IntN(8)
		}
		m[part] = data
		if lookAtAll(t, pack(t, m)) {
			read++
		}
	}
	t.Logf("%d of 1,200 changed bundles could be read", read)
	if read == 0 {
		t.Error("no changed bundle could be read: the commands after it were not tried")
	}
}

// lookAtAll imports a bundle and shows the run in every way that the commands do.
func lookAtAll(t *testing.T, path string) bool {
	t.Helper()
	ctx := context.Background()
	b, err := readBundle(path, false)
	if err != nil {
		return false
	}
	st := memory.New(memory.Options{})
	defer func() { _ = st.Close() }()
	if _, err := b.Commit(ctx, st, account); err != nil {
		return false
	}
	head, err := st.Head(ctx, store.Key{Account: account, Run: b.Run})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	none := func(string) string { return "" }
	a := &app{account: account, stdout: &out, stderr: &out, output: asTable, now: time.Now, getenv: none, screen: term.NewScreen(&out, true, none)}
	s, err := a.readSide(ctx, st, b.Run)
	if err != nil {
		return false
	}
	compareAll(a, s, view.NewSide(b.Definition, b.Run, false))
	if _, err := replay(ctx, st, head, 0); err != nil {
		return false
	}
	v, run, err := stateOf(ctx, st, head)
	if err != nil {
		t.Fatal(err)
	}
	a.printRun(v, fullView{result: resultOf(v), WaitState: run.WaitState()}, head)
	tr, pic, said := view.NewTracer(b.Definition, b.Run, view.MaxSteps), picture.NewFold(b.Definition, true), saidWriter{app: a, out: a.stream()}
	err = store.EachEvent(ctx, st, head.Key, 0, func(ev *journal.Event) error {
		a.text("%s\n", a.eventLine(b.Definition, ev))
		if line, ok := view.StepLog(b.Definition, ev); ok {
			said.add(line)
		}
		pic.Add(ev)
		return tr.Apply(ev)
	})
	if err != nil {
		t.Fatal(err)
	}
	spans := tr.Trace(0)
	a.printTrace(spans, view.MaxSteps, false)
	a.printTrace(spans, view.MaxSteps, true)
	var explainAll func(spans []*view.Span)
	explainAll = func(spans []*view.Span) {
		for _, span := range spans {
			x := view.NewExplainer(b.Definition, b.Run, span.Ref)
			if err := store.EachEvent(ctx, st, head.Key, 0, x.Apply); err != nil {
				t.Fatal(err)
			}
			a.printExplanation(x.Explain())
			explainAll(span.Children)
		}
	}
	explainAll(spans.Steps)
	if p, err := pic.Picture(head.Recipe, true); err == nil {
		drawAll(p)
	}
	return true
}

// A tired store fails after a few commits.
type tired struct {
	store.Store
	left int
}

func (s *tired) Commit(ctx context.Context, batch []store.Transition) ([]store.Verdict, error) {
	if s.left--; s.left < 0 {
		return nil, fault.New(fault.StoreFailed, "tired")
	}
	return s.Store.Commit(ctx, batch)
}

// An interrupted import leaves a quarantined run, and the next import continues where
// it stopped. A different run with the same id is never changed.
func TestImportIsWholeOrApart(t *testing.T) {
	ctx := context.Background()
	good := parts(t, exportedBundle(t))
	b, err := readBundle(pack(t, good), false)
	if err != nil {
		t.Fatal(err)
	}
	st := memory.New(memory.Options{})
	defer func() { _ = st.Close() }()
	b.Piece = 200
	key := store.Key{Account: account, Run: b.Run}
	for n := range 3 {
		if _, err := b.Commit(ctx, &tired{st, 1}, account); err == nil {
			t.Fatalf("import %d did not notice that the store failed", n)
		}
		if head, err := st.Head(ctx, key); err != nil || head.Quarantine != bundle.Importing {
			t.Fatalf("half an import is not quarantined: %+v, %v", head, err)
		}
	}
	if state, err := b.Commit(ctx, st, account); state != "imported" || err != nil {
		t.Fatalf("%q, %v", state, err)
	}
	if state, err := b.Commit(ctx, st, account); state != "unchanged" || err != nil {
		t.Errorf("again: %q, %v", state, err)
	}
	head, err := st.Head(ctx, key)
	if err != nil || head.Status != "failed" || !head.Imported() || head.Code != fault.StepFailed || head.Owes {
		t.Errorf("the head is %+v, %v", head, err)
	}
	other, err := readBundle(pack(t, parts(t, exportedBundle(t, "--redact"))), false)
	if err != nil {
		t.Fatal(err)
	}
	other.Run = b.Run
	if _, err := other.Commit(ctx, st, account); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("another journal under the same id: %v", err)
	}
}
