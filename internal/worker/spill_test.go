// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/jsonx"
)

// recordingFiles is a file store that records what is stored.
type recordingFiles struct {
	action.Files
	put []action.FileInfo
}

func (k *recordingFiles) Put(ctx context.Context, r io.Reader, name, mime string) (action.FileInfo, error) {
	info, err := k.Files.Put(ctx, r, name, mime)
	k.put = append(k.put, info)
	return info, err
}

func (k *recordingFiles) names() []string {
	var names []string
	for _, f := range k.put {
		names = append(names, f.Name)
	}
	return names
}

func newFiles(t testing.TB) *recordingFiles {
	t.Helper()
	s, err := blob.Open(blob.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return &recordingFiles{Files: s.Files("acme")}
}

// runAction runs an action that returns out, with files.
func runAction(t testing.TB, files action.Files, out any) Result {
	t.Helper()
	w := &recorder{}
	p := New(w.config())
	defer p.Stop(context.Background())
	tk := task("large", func(context.Context, *action.Task) (action.Result, error) { return action.Result{Output: out}, nil })
	tk.Task.Files = files
	if err := p.Run(tk); err != nil {
		t.Fatal(err)
	}
	return <-w.done
}

// restore replaces the references of an output by their values.
func restore(t testing.TB, files action.Files, out []byte) []byte {
	t.Helper()
	whole, err := fetch(context.Background(), files, out)
	if err != nil {
		t.Fatal(err)
	}
	return whole
}

// with adds a field to an object.
func with(obj map[string]any, key string, v any) map[string]any {
	obj[key] = v
	return obj
}

func text(n int) string { return strings.Repeat("t", n) }

func texts(n, each int) []any {
	list := make([]any, n)
	for i := range list {
		list[i] = fmt.Sprintf("%04d%s", i, text(each-4))
	}
	return list
}

// Design section 7: the largest texts or lists of an output over 1 MiB are stored in
// files until the rest fits.
func TestLargeOutputsGoToFiles(t *testing.T) {
	manyPages := make([]any, 400)
	for i := range manyPages {
		manyPages[i] = map[string]any{"page": int64(i + 1), "text": text(10_000)}
	}
	small := func(n int) map[string]any {
		m := map[string]any{}
		for i := range n {
			m[fmt.Sprintf("k%05d", i)] = text(1_000)
		}
		return m
	}
	for _, tt := range []struct {
		name  string
		out   any
		files []string
	}{
		{"what fits stays", map[string]any{"a": text(MaxOutput - 100), "b": text(50)}, nil},
		{"one long text", map[string]any{"text": text(3 << 20), "title": "T"}, []string{"s.text.txt"}},
		{"the output is a text", text(2 << 20), []string{"s.txt"}},
		{"the output is a list", texts(3_000, 1_000), []string{"s.json"}},
		{"the largest first, and no more than needed", map[string]any{"a": text(600_000), "b": text(700_000), "c": text(100_000)}, []string{"s.b.txt"}},
		{"of equals the first", map[string]any{"a": text(700_000), "b": text(700_000)}, []string{"s.a.txt"}},
		{"several", map[string]any{"a": text(900_000), "b": text(800_000), "c": text(700_000), "d": text(200_000)}, []string{"s.a.txt", "s.b.txt"}},
		{"a list as a whole", map[string]any{"pages": manyPages, "title": "T"}, []string{"s.pages.json"}},
		{"a long text in a list by itself", map[string]any{"pages": []any{text(2 << 20), "short", text(3 << 20)}}, []string{"s.pages.0.txt", "s.pages.2.txt"}},
		{"a list of lists", [][]any{texts(2_000, 1_000), texts(2_001, 1_000)}, []string{"s.0.json", "s.1.json"}},
		{"a list of large objects with nothing large inside", map[string]any{"l": []any{small(1_500), small(1_500)}}, []string{"s.l.json"}},
		{"long texts in objects in a list", []any{map[string]any{"t": text(2 << 20)}, map[string]any{"t": "x"}}, []string{"s.0.t.txt"}},
		{"a long text in a list that is long without it", map[string]any{"l": append(texts(3_000, 1_000), text(2<<20))}, []string{"s.l.json"}},
		{"a list that waited for what is large inside goes before what is smaller", map[string]any{"b": text(100_000), "l": []any{with(small(1_500), "t", text(1_100_000))}}, []string{"s.l.json"}},
		{"a list whose element stays large without what is large inside", map[string]any{"l": []any{with(small(1_500), "m", []any{text(1_100_000), "x"})}}, []string{"s.l.json"}},
		{"deep inside", map[string]any{"a": map[string]any{"b": []any{map[string]any{"c/d": text(2 << 20)}}}}, []string{"s.a.b.0.c_d.txt"}},
		{"escapes", map[string]any{"te\"xt": strings.Repeat("\"\\\n\x01é\U0001F600", 200_000)}, []string{`s.te"xt.txt`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			files := newFiles(t)
			want, _, err := canonical(tt.out, MaxLarge)
			if err != nil {
				t.Fatal(err)
			}
			r := runAction(t, files, tt.out)
			if r.Err != nil || len(r.Output) > MaxOutput {
				t.Fatalf("%v, %d bytes", r.Err, len(r.Output))
			}
			if got := files.names(); !slices.Equal(got, tt.files) {
				t.Errorf("files %q, want %q", got, tt.files)
			}
			if again, err := jsonx.CanonicalRaw(r.Output); err != nil || !bytes.Equal(again, r.Output) {
				t.Errorf("the output is not canonical: %v", err)
			}
			if !bytes.Equal(restore(t, files, r.Output), want) {
				t.Error("what the references stand for is not what was returned")
			}
			// The same value gives the same references.
			if again := runAction(t, files, tt.out); !bytes.Equal(again.Output, r.Output) {
				t.Error("the choice is not the same again")
			}
		})
	}
}

// The form of a reference is public, and so are the files.
func TestReferenceForm(t *testing.T) {
	files := newFiles(t)
	r := runAction(t, files, map[string]any{"text": strings.Repeat("é", 1<<20), "list": []any{"a", text(10)}})
	want := fmt.Sprintf(`{"list":["a","tttttttttt"],"text":{"$roux":"ref","bytes":2097152,"hash":"%s","size":1048576,"type":"string"}}`, files.put[0].Hash)
	if string(r.Output) != want {
		t.Errorf("output %s", r.Output)
	}
	if f := files.put[0]; f.Name != "s.text.txt" || f.MimeType != "text/plain" || f.Size != 2<<20 {
		t.Errorf("file %+v", f)
	}
	files = newFiles(t)
	r = runAction(t, files, map[string]any{"list": texts(2_000, 1_000)})
	want = fmt.Sprintf(`{"list":{"$roux":"ref","bytes":2006001,"hash":"%s","size":2000,"type":"list"}}`, files.put[0].Hash)
	if f := files.put[0]; string(r.Output) != want || f.Name != "s.list.json" || f.MimeType != "application/json" {
		t.Errorf("output %s, file %+v", r.Output, f)
	}
}

// F21: the bounds of 1 MiB and 64 MiB are exact.
func TestF21_OutputBoundaries(t *testing.T) {
	files := newFiles(t)
	inJSON := func(n int) map[string]any { return map[string]any{"t": text(n - len(`{"t":""}`))} }
	for _, tt := range []struct {
		bytes, files int
		code         fault.Code
	}{
		{MaxOutput, 0, ""}, {MaxOutput + 1, 1, ""}, {MaxLarge, 1, ""}, {MaxLarge + 1, 0, fault.OutputTooLarge},
	} {
		files.put = nil
		r := runAction(t, files, inJSON(tt.bytes))
		if codeOf(r.Err) != tt.code || len(files.put) != tt.files {
			t.Errorf("%d bytes: %v, %d files", tt.bytes, r.Err, len(files.put))
		}
	}
	if r := runAction(t, nil, inJSON(MaxOutput+1)); codeOf(r.Err) != fault.OutputTooLarge {
		t.Errorf("without files: %v", r.Err)
	}
	// Raw JSON may shrink to the bound, and no text of four times that is read.
	files.put = nil
	raw := json.RawMessage(`{"t": "` + text(MaxOutput) + `"}`)
	if r := runAction(t, files, raw); r.Err != nil || len(files.put) != 1 {
		t.Errorf("raw JSON: %v", r.Err)
	}
}

// I15: an output that would take too much memory when decoded, or too many files, is
// refused.
func TestI15_OutputsThatCannotBeSplit(t *testing.T) {
	files := newFiles(t)
	fields := func(n, each int) map[string]any {
		m := map[string]any{}
		for i := range n {
			m[fmt.Sprintf("k%05d", i)] = text(each)
		}
		return m
	}
	for name, out := range map[string]any{
		"many small fields":                  fields(20_000, 100),
		"more files than an output may make": fields(1_100+maxSpilled, minSpilled+100),
		"millions of numbers":                json.RawMessage("[" + strings.Repeat("1,", maxTokens) + "1]"),
	} {
		files.put = nil
		if r := runAction(t, files, out); codeOf(r.Err) != fault.OutputTooLarge || len(files.put) != 0 {
			t.Errorf("%s: %v, %d files", name, r.Err, len(files.put))
		}
	}
	if r := runAction(t, files, fields(maxSpilled, 5_000)); r.Err != nil || len(r.Output) > MaxOutput {
		t.Errorf("as many files as allowed: %v", r.Err)
	}
}

// The contract is checked on the whole output, and the action sees the whole
// input.
func TestContractsSeeTheWhole(t *testing.T) {
	files := newFiles(t)
	w := &recorder{}
	p := New(w.config())
	defer p.Stop(context.Background())
	tk := task("whole", func(_ context.Context, task *action.Task) (action.Result, error) {
		var in struct {
			Text  string
			Again string
			List  []any
		}
		if err := task.Decode(&in); err != nil {
			return action.Result{}, err
		}
		return action.Result{Output: map[string]any{"text": in.Text + in.Again, "n": len(in.List)}}, nil
	})
	tk.Task.Files = files
	made := runAction(t, files, map[string]any{"text": text(2 << 20), "list": texts(2_000, 1_000)})
	var refs struct{ Text, List json.RawMessage }
	if err := json.Unmarshal(made.Output, &refs); err != nil {
		t.Fatal(err)
	}
	tk.Task.Input = []byte(fmt.Sprintf(`{"again":%s,"list":%s,"text":%s}`, refs.Text, refs.List, refs.Text))
	tk.CheckInput = func(v any) error {
		in := v.(map[string]any)
		if len(in["text"].(string)) != 2<<20 || in["again"] != in["text"] || len(in["list"].([]any)) != 2_000 {
			return errors.New("the input is not whole")
		}
		return nil
	}
	tk.CheckOutput = func(v any) error {
		if len(v.(map[string]any)["text"].(string)) != 4<<20 {
			return errors.New("the output is not whole")
		}
		return nil
	}
	r := run(t, p, w, tk)
	if r.Err != nil || !strings.HasPrefix(string(r.Output), `{"n":2000,"text":{"$roux":"ref","bytes":4194304,`) {
		t.Errorf("%v, %.200s", r.Err, r.Output)
	}
}

// F21: the size of an input with what it refers to is checked before anything
// is read.
func TestF21_InputsAreBounded(t *testing.T) {
	files := newFiles(t)
	half := runAction(t, files, text(MaxLarge/2)).Output
	in := func(refs ...[]byte) []byte {
		return append(append([]byte(`{"a":[`), bytes.Join(refs, []byte(","))...), "]}"...)
	}
	opened := &counting{Files: files}
	if _, err := fetch(t.Context(), opened, in(half, half)); !errors.Is(err, fault.ValueTooLarge) || opened.n != 0 {
		t.Errorf("%v, %d files opened", err, opened.n)
	}
	if _, err := fetch(t.Context(), opened, in(half)); err != nil || opened.n != 1 {
		t.Errorf("%v, %d files opened", err, opened.n)
	}
	if whole, err := fetch(t.Context(), opened, []byte(`{"a":1}`)); err != nil || string(whole) != `{"a":1}` {
		t.Errorf("%s, %v", whole, err)
	}
	// Escapes make text longer in JSON than in the file.
	ctl := runAction(t, files, strings.Repeat("\x01", 9<<20)).Output
	if _, err := fetch(t.Context(), opened, in(ctl)); err != nil {
		t.Error(err)
	}
	if _, err := fetch(t.Context(), opened, in(ctl, ctl)); !errors.Is(err, fault.ValueTooLarge) {
		t.Error(err)
	}
}

type counting struct {
	action.Files
	n int
}

func (c *counting) Open(ctx context.Context, hash string) (action.File, error) {
	c.n++
	return c.Files.Open(ctx, hash)
}

// A missing or changed file fails the attempt with the error code of the file.
func TestInputsWhoseFilesAreGone(t *testing.T) {
	files := newFiles(t)
	ref := runAction(t, files, text(2<<20)).Output
	other := bytes.Replace(ref, []byte("sha256_"), []byte("sha256_0"), 1)
	other = bytes.Replace(other, []byte(`","size"`), []byte(`x","size"`), 1)
	other = append(other[:bytes.Index(other, []byte(`x","size"`))-1], other[bytes.Index(other, []byte(`x","size"`))+1:]...)
	if _, err := fetch(t.Context(), files, other); !errors.Is(err, fault.FileNotFound) {
		t.Errorf("gone: %v", err)
	}
	short := bytes.Replace(ref, []byte(`"bytes":2097152`), []byte(`"bytes":2097151`), 1)
	if _, err := fetch(t.Context(), files, short); !errors.Is(err, fault.FileInvalid) {
		t.Errorf("of another length: %v", err)
	}
	if _, err := fetch(t.Context(), nil, ref); !errors.Is(err, fault.FileNotFound) {
		t.Errorf("without files: %v", err)
	}
}

// A13: an action cannot refer to a file by returning a value in the form of a
// reference.
func TestA13_OutputsCannotForgeReferences(t *testing.T) {
	files := newFiles(t)
	ref := string(runAction(t, files, text(2<<20)).Output)
	for _, out := range []any{
		json.RawMessage(ref), json.RawMessage(`{"a":[` + ref + `]}`), map[string]any{"$roux": 1}, []any{map[string]any{"b": map[string]any{"$roux": nil}}},
		json.RawMessage(`{"\u0024roux":"ref"}`), map[string]any{"t": text(3 << 20), "u": map[string]any{"$roux": "x"}},
	} {
		if r := runAction(t, files, out); codeOf(r.Err) != fault.OutputContractViolation || !strings.Contains(r.Err.Msg, `"$roux"`) {
			t.Errorf("%.80v: %v", out, r.Err)
		}
	}
	// The same inside a string is only text.
	for _, out := range []any{ref, map[string]any{"$roux ": 1, "a": "$roux", "b": []any{"$roux", `{"$roux":"ref"}`}}} {
		if r := runAction(t, files, out); r.Err != nil {
			t.Errorf("%.80v: %v", out, r.Err)
		}
	}
}

// For an output of any shape, replacing the references restores it.
func TestLargeOutputsOfAnyShape(t *testing.T) {
	files := newFiles(t)
	r := rand.New(rand.NewPCG(1, 2))
	var draw func(depth int) any
	draw = func(depth int) any {
		switch n := r.IntN(12); {
		case n < 3 && depth < 6:
			list := make([]any, r.IntN(8))
			for i := range list {
				list[i] = draw(depth + 1)
			}
			return list
		case n < 7 && depth < 6:
			obj := map[string]any{}
			for range r.IntN(8) {
				obj[fmt.Sprintf("k\"%d", r.IntN(1_000))] = draw(depth + 1)
			}
			return obj
		case n < 10:
			return strings.Repeat([]string{"x", "é", "\"", "\\", "]", "{", ":"}[r.IntN(7)], r.IntN(1<<r.IntN(21)))
		}
		return int64(r.Int())
	}
	n := 40
	if testing.Short() {
		n = 10
	}
	spilled := 0
	for i := range n {
		out := map[string]any{"a": draw(0), "b": draw(0), "c": draw(0)}
		want, err := jsonx.Canonical(out)
		if err != nil {
			t.Fatal(err)
		}
		files.put = nil
		res := runAction(t, files, out)
		if len(want) > MaxLarge {
			continue
		}
		if res.Err != nil || len(res.Output) > MaxOutput {
			t.Fatalf("case %d of %d bytes: %v, %d bytes", i, len(want), res.Err, len(res.Output))
		}
		if !bytes.Equal(restore(t, files, res.Output), want) {
			t.Fatalf("case %d: the references stand for something else", i)
		}
		hashes := map[string]bool{}
		for _, f := range files.put {
			hashes[f.Hash] = true
		}
		for rest := res.Output; ; {
			ref, _, end, ok := jsonx.NextLarge(rest)
			if !ok {
				break
			}
			if delete(hashes, ref.Hash); ref.Bytes < minSpilled/8 {
				t.Errorf("case %d: a reference to %d bytes", i, ref.Bytes)
			}
			rest = rest[end:]
		}
		if len(hashes) > 0 {
			t.Errorf("case %d: files nobody refers to: %v", i, slices.Collect(maps.Keys(hashes)))
		}
		if len(files.put) > 0 {
			spilled++
		}
	}
	if spilled < n/4 {
		t.Errorf("only %d of %d were large", spilled, n)
	}
}

func BenchmarkSpill(b *testing.B) {
	data, err := jsonx.Canonical(map[string]any{"list": texts(20_000, 1_000), "text": text(20 << 20)})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		c := chooser{data: data}
		c.scan()
		if len(c.choose()) != 2 {
			b.Fatal("want two files")
		}
	}
}

// I15: large outputs are checked and stored one at a time, however many attempts return
// at once; a cancelled attempt leaves the queue.
func TestI15_LargeOutputsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &recorder{}
		p := New(w.config())
		files := &slowFiles{release: make(chan struct{})}
		for i := range 3 {
			tk := task(fmt.Sprint(i), func(context.Context, *action.Task) (action.Result, error) {
				return action.Result{Output: text(2 << 20)}, nil
			})
			tk.Task.Files = files
			if err := p.Run(tk); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // they run one at a time
		}
		if n := files.inside.Load(); n != 1 {
			t.Errorf("%d outputs are stored at once", n)
		}
		if !p.Cancel(ID{Run: "2", Attempt: 1, Gen: 1}) {
			t.Error("the attempt in the queue is not known")
		}
		if r := <-w.done; r.ID.Run != "2" || codeOf(r.Err) != fault.ExecutionCancelled {
			t.Errorf("the cancelled attempt: %+v", r)
		}
		close(files.release)
		for range 2 {
			if r := <-w.done; r.Err != nil || !bytes.Contains(r.Output, []byte("$roux")) {
				t.Errorf("%s: %v", r.ID.Run, r.Err)
			}
		}
		p.Stop(context.Background())
	})
}

// slowFiles is slow and counts concurrent calls.
type slowFiles struct {
	action.Files
	inside  atomic.Int32
	release chan struct{}
}

func (s *slowFiles) Put(_ context.Context, r io.Reader, name, mime string) (action.FileInfo, error) {
	s.inside.Add(1)
	<-s.release
	n, err := io.Copy(io.Discard, r)
	return action.FileInfo{Hash: "sha256_" + strings.Repeat("0", 64), Name: name, MimeType: mime, Size: n}, err
}
