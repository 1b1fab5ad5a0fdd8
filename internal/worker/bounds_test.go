// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonx"
)

// Do returns after the action has returned and the result is reported; a refused task
// is not reported.
func TestDo(t *testing.T) {
	w := &recorder{}
	p := New(w.config())
	called := 0
	tk := task("x", func(context.Context, *action.Task) (action.Result, error) {
		called++
		return action.Result{Output: int64(7)}, nil
	})
	if err := p.Do(&tk); err != nil || called != 1 || string(w.results[tk.ID].Output) != "7" {
		t.Errorf("Do = %v after %d calls, reported %+v", err, called, w.results)
	}
	p.Stop(context.Background())
	tk.ID.Attempt = 2
	if err := p.Do(&tk); !errors.Is(err, fault.Stopping) || called != 1 || len(w.results) != 1 {
		t.Errorf("Do after Stop = %v, %d calls, %d reports", err, called, len(w.results))
	}
}

// Every callback that is counted in is counted out; a wrong count would let Stop return
// too early or never.
func TestCallbacksAreCounted(t *testing.T) {
	for name, forgo := range map[string]func(*Config){
		"all":       func(*Config) {},
		"no Freed":  func(c *Config) { c.Freed = nil },
		"no Report": func(c *Config) { c.Report = nil },
	} {
		synctest.Test(t, func(t *testing.T) {
			w := &recorder{}
			cfg := w.config()
			forgo(&cfg)
			p := New(cfg)
			for i, lasts := range []time.Duration{0, 2 * time.Second, time.Minute} {
				tk := task(fmt.Sprint(i), func(_ context.Context, task *action.Task) (action.Result, error) {
					task.Report.Log("info", "hello")
					time.Sleep(lasts)
					return action.Result{}, nil
				})
				tk.TimeoutMS = 1_000
				if err := p.Run(tk); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			p.mu.Lock()
			if p.calls != 0 || p.abandoned != 0 || len(p.attempts) != 0 {
				t.Errorf("%s: at rest %d callbacks are under way, %d attempts abandoned, %d running", name, p.calls, p.abandoned, len(p.attempts))
			}
			p.mu.Unlock()
			if n := p.Stop(context.Background()); n != 0 || len(w.results) != 3 {
				t.Errorf("%s: %d given up, %d results", name, n, len(w.results))
			}
		})
	}
}

// A fraction of 1 is always passed on, and so is a change of exactly the
// minimum.
func TestProgressAtItsBounds(t *testing.T) {
	w := &recorder{}
	p := New(w.config())
	run(t, p, w, task("x", func(_ context.Context, task *action.Task) (action.Result, error) {
		for _, f := range []float64{0, progressStep / 2, progressStep, progressStep, 0.999, 1, 1, 0.998, 0.999} {
			task.Report.Progress(f, "reading")
		}
		return action.Result{}, nil
	}))
	p.Stop(context.Background())
	_, reports := w.recorded()
	var got []string
	for _, r := range reports {
		got = append(got, fmt.Sprint(r.Fraction))
	}
	if want := "0 0.005 0.999 1"; strings.Join(got, " ") != want {
		t.Errorf("passed on %v, want %s", got, want)
	}
}

// A fraction is clamped to 0..1, and NaN counts as 0.
func TestProgressIsAFraction(t *testing.T) {
	w := &recorder{}
	p := New(w.config())
	run(t, p, w, task("x", func(_ context.Context, task *action.Task) (action.Result, error) {
		for _, f := range []float64{math.NaN(), -1, math.Inf(-1), 0.25, math.NaN(), 7, math.Inf(1)} {
			task.Report.Progress(f, fmt.Sprint(f))
		}
		return action.Result{}, nil
	}))
	p.Stop(context.Background())
	_, reports := w.recorded()
	var got []string
	for _, r := range reports {
		got = append(got, fmt.Sprint(r.Fraction))
	}
	if want := "0 0 0 0.25 0 1 1"; strings.Join(got, " ") != want {
		t.Errorf("passed on %v, want %s", got, want)
	}
}

// The bound on reported bytes is exact.
func TestReportsToTheLastByte(t *testing.T) {
	for more, want := range []int{1, 0} {
		w := &recorder{}
		p := New(w.config())
		r := run(t, p, w, task("x", func(_ context.Context, task *action.Task) (action.Result, error) {
			task.Report.Delta(text(MaxReported - reportBytes + more))
			return action.Result{}, nil
		}))
		p.Stop(context.Background())
		if _, reports := w.recorded(); len(reports) != want || r.Dropped != int64(1-want) {
			t.Errorf("%d bytes more: %d reports, %d dropped", more, len(reports), r.Dropped)
		}
	}
}

// The bound on the bytes of an input with what it refers to is exact, both for the size
// of the files and for the length of their texts in JSON.
func TestLargestInputs(t *testing.T) {
	files := newFiles(t)
	input := func(content string, list bool) []byte {
		info, err := files.Put(context.Background(), strings.NewReader(content), "x", "")
		if err != nil {
			t.Fatal(err)
		}
		return (&jsonx.Large{Hash: info.Hash, Bytes: info.Size, List: list, Size: info.Size}).Append(nil)
	}
	wrapped := len(input("[]", true)) + len("67108864") - len("2") + len("67108864") - len("2") // Bytes and Size
	for more, want := range []fault.Code{"", fault.ValueTooLarge} {
		// Before it is read, a list counts together with its reference.
		got, err := fetch(context.Background(), files, input("["+strings.Repeat(" ", MaxLarge-wrapped-2+more)+"]", true))
		if fault.CodeOf(err) != want && (err != nil || want != "") {
			t.Errorf("a list, %d bytes more: %d bytes, %v", more, len(got), err)
		}
		// A line break takes two bytes in JSON and one in a file.
		const breaks = 1_000
		got, err = fetch(context.Background(), files, input(strings.Repeat("\n", breaks)+text(MaxLarge-2-2*breaks+more), false))
		if fault.CodeOf(err) != want && (err != nil || want != "") || want == "" && len(got) != MaxLarge {
			t.Errorf("a text, %d bytes more: %d bytes, %v", more, len(got), err)
		}
	}
}

// A file that is longer or shorter than its reference says is an error.
func TestInputsWhoseFilesChanged(t *testing.T) {
	files := newFiles(t)
	info, err := files.Put(context.Background(), strings.NewReader("[1,2,3,44]"), "x", "")
	if err != nil {
		t.Fatal(err)
	}
	for off := int64(-1); off <= 1; off++ {
		got, err := contentOf(context.Background(), files, jsonx.Large{Hash: info.Hash, Bytes: info.Size + off, List: true})
		if off == 0 && (err != nil || string(got) != "[1,2,3,44]") || off != 0 && !errors.Is(err, fault.FileInvalid) {
			t.Errorf("a reference to %d bytes of %d: %q, %v", info.Size+off, info.Size, got, err)
		}
	}
}

// From the size at which a text is stored in its own file, a list waits for a text in a
// large element, because the element may then be small enough.
func TestSplittingAtItsBound(t *testing.T) {
	for less, want := range []string{"s.0.large.txt", "s.json"} {
		files := newFiles(t)
		element := map[string]any{"large": text(worthSplitting - len(`""`) - less)}
		for i := range (MaxOutput-worthSplitting/2)/4_000 - 1 {
			element[fmt.Sprintf("k%05d", i)] = text(4_000 - len(`"k00000":"",`))
		}
		if r := runAction(t, files, []any{element}); r.Err != nil || fmt.Sprint(files.names()) != "["+want+"]" {
			t.Errorf("a text of %d bytes less: %v, %v, want %s", less, r.Err, files.names(), want)
		}
	}
}

// A reference has the number of elements of its list, whatever the last element
// is.
func TestReferencesCountElements(t *testing.T) {
	for _, last := range []any{[]any{}, map[string]any{}, []any{[]any{}}, "", int64(7)} {
		r := runAction(t, newFiles(t), append(texts(1_200, 1_000), last))
		if ref, _, _, ok := jsonx.NextLarge(r.Output); !ok || !ref.List || ref.Size != 1_201 {
			t.Errorf("a list that ends with %v: %+v, %v", last, ref, r.Err)
		}
	}
}
