// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/roux-engine/roux/action"
)

// timedReports records what a pool reports and when, in ms since the first call of now.
type timedReports struct {
	mu    sync.Mutex
	began time.Time
	list  []string
	ended bool
}

func (w *timedReports) config() Config {
	w.began = time.Now()
	return Config{
		Done: func(Result) { w.add("done"); w.ended = true },
		Report: func(r Report) {
			switch r.Kind {
			case Delta:
				w.add(r.Text)
			case Log:
				w.add("log " + r.Text)
			case Progress:
				w.add(fmt.Sprint("progress ", r.Fraction))
			case Preview:
				w.add("preview " + string(r.Value))
			}
		},
		Grace: time.Second,
	}
}

func (w *timedReports) add(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		text = "AFTER THE RESULT: " + text
	}
	w.list = append(w.list, fmt.Sprintf("%d %s", time.Since(w.began).Milliseconds(), text))
}

func (w *timedReports) want(t *testing.T, want ...string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if got := strings.Join(w.list, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

// X181: the first piece of streamed text is a delta at once. Those that follow within 100 ms, or up
// to 4 KiB, are one; another report comes after the text that was streamed before it.
func TestX181_PiecesAreJoined(t *testing.T) {
	const kib = 1 << 10
	for name, tt := range map[string]struct {
		say  func(say action.Reporter)
		want []string
	}{
		"by time": {func(say action.Reporter) {
			for range 5 {
				say.Delta("a")
				time.Sleep(30 * time.Millisecond)
			}
			time.Sleep(time.Second)
			say.Delta("b")
			say.Delta("")
			time.Sleep(99 * time.Millisecond)
			say.Delta("c")
			time.Sleep(time.Millisecond)
		}, []string{"0 a", "100 aaa", "200 a", "1150 b", "1250 c", "1250 done"}},
		"by size": {func(say action.Reporter) {
			say.Delta(strings.Repeat("x", 4*kib-1))
			say.Delta("y")
			say.Delta("z")
			time.Sleep(50 * time.Millisecond)
			say.Delta(strings.Repeat("x", 4*kib))
			say.Delta(strings.Repeat("x", 5*kib))
			time.Sleep(time.Millisecond)
		}, []string{"0 " + strings.Repeat("x", 4*kib-1), "50 yz", "50 " + strings.Repeat("x", 4*kib), "50 " + strings.Repeat("x", 5*kib), "51 done"}},
		"in order": {func(say action.Reporter) {
			say.Delta("a")
			say.Log("info", "l")
			say.Delta("b")
			say.Progress(0.5, "")
			say.Delta("c")
			say.Progress(0.5, "") // is not passed on: nothing has changed
			say.Delta("d")
			say.Preview(1)
			say.Delta("e")
			say.Preview(make(chan int)) // is dropped
			say.Delta("f")
		}, []string{"0 a", "0 log l", "0 b", "0 progress 0.5", "0 cd", "0 preview 1", "0 ef", "0 done"}},
		"after a timer that was too early": {func(say action.Reporter) {
			say.Delta("a")
			time.Sleep(90 * time.Millisecond)
			say.Log("info", "l")
			say.Delta("b")
			time.Sleep(90 * time.Millisecond)
			say.Delta("c")
			time.Sleep(time.Second)
		}, []string{"0 a", "90 log l", "100 b", "200 c", "1180 done"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &timedReports{}
				p := New(w.config())
				_ = p.Run(task("x", func(_ context.Context, task *action.Task) (action.Result, error) {
					tt.say(task.Report)
					return action.Result{}, nil
				}))
				p.Stop(context.Background())
				w.want(t, tt.want...)
			})
		})
	}
}

// Whatever ends an attempt, what it has streamed before is reported before its result, and
// nothing after it.
func TestX181_NothingIsLostAtTheEnd(t *testing.T) {
	for name, tt := range map[string]struct {
		end  func(ctx context.Context) error
		want []string
	}{
		"success":                     {func(context.Context) error { return nil }, []string{"0 a", "0 b", "0 done"}},
		"failure":                     {func(context.Context) error { return errors.New("no") }, []string{"0 a", "0 b", "0 done"}},
		"panic":                       {func(context.Context) error { panic("no") }, []string{"0 a", "0 b", "0 done"}},
		"goexit":                      {func(context.Context) error { runtime.Goexit(); return nil }, []string{"0 a", "0 b", "0 done"}},
		"cancel":                      {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, []string{"0 a", "20 b", "20 done"}},
		"timeout":                     {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, []string{"0 a", "30 b", "30 done"}},
		"a cancel that is not heard":  {func(context.Context) error { time.Sleep(time.Minute); return nil }, []string{"0 a", "100 b", "1020 done"}},
		"a timeout that is not heard": {func(context.Context) error { time.Sleep(time.Minute); return nil }, []string{"0 a", "30 b", "30 done"}},
		"stop":                        {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, []string{"0 a", "10 b"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &timedReports{}
				p := New(w.config())
				tk := task("x", func(ctx context.Context, task *action.Task) (action.Result, error) {
					task.Report.Delta("a")
					task.Report.Delta("b")
					defer task.Report.Delta("too late")
					return action.Result{}, tt.end(ctx)
				})
				if strings.Contains(name, "timeout") {
					tk.TimeoutMS = 30
				}
				if !strings.Contains(name, "cancel") && !strings.Contains(name, "stop") && !strings.Contains(name, "timeout") {
					tk.Action.Run = func(ctx context.Context, task *action.Task) (action.Result, error) {
						task.Report.Delta("a")
						task.Report.Delta("b")
						return action.Result{}, tt.end(ctx)
					}
				}
				_ = p.Run(tk)
				if strings.Contains(name, "cancel") {
					time.Sleep(20 * time.Millisecond)
					p.Cancel(tk.ID)
				}
				ctx, stop := context.WithCancel(context.Background())
				defer stop()
				if name == "stop" {
					time.AfterFunc(10*time.Millisecond, stop)
				}
				p.Stop(ctx)
				time.Sleep(2 * time.Minute)
				want := tt.want
				if name == "cancel" {
					want = []string{"0 a", "20 btoo late", "20 done"} // it ended by itself, within its grace
				}
				w.want(t, want...)
			})
		})
	}
}

// For any pieces at any times: the text is the same, no piece waits more than 100 ms, and a
// delta of several pieces has at most 4 KiB.
func TestX181_AnyPieces(t *testing.T) {
	type piece struct {
		text string
		wait time.Duration
		log  bool
	}
	rapid.Check(t, func(rt *rapid.T) {
		var pieces []piece
		for i := range rapid.IntRange(0, 40).Draw(rt, "pieces") {
			pieces = append(pieces, piece{
				text: fmt.Sprintf("<%d>", i) + strings.Repeat("x", rapid.SampledFrom([]int{0, 0, 10, 1000, 4090, 5000}).Draw(rt, "size")),
				wait: time.Duration(rapid.IntRange(0, 120).Draw(rt, "ms")) * time.Millisecond,
				log:  rapid.IntRange(0, 9).Draw(rt, "log") == 0,
			})
		}
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			made := map[string]time.Time{}
			var got, want strings.Builder
			p := New(Config{Done: func(Result) {}, Report: func(r Report) {
				mu.Lock()
				defer mu.Unlock()
				got.WriteString(r.Text)
				if r.Kind != Delta {
					return
				}
				list := strings.SplitAfter(r.Text, "<")
				if len(list) > 2 && len(r.Text) > maxDelta {
					t.Errorf("a delta of %d pieces has %d bytes", len(list)-1, len(r.Text))
				}
				for _, one := range list[1:] {
					id, _, _ := strings.Cut(one, ">")
					if late := time.Since(made[id]); late > 100*time.Millisecond {
						t.Errorf("piece %s waited %s", id, late)
					}
				}
			}})
			_ = p.Run(task("x", func(_ context.Context, task *action.Task) (action.Result, error) {
				for i, one := range pieces {
					time.Sleep(one.wait)
					mu.Lock()
					made[fmt.Sprint(i)] = time.Now()
					mu.Unlock()
					want.WriteString(one.text)
					task.Report.Delta(one.text)
					if one.log {
						want.WriteString("|")
						task.Report.Log("info", "|")
					}
				}
				return action.Result{}, nil
			}))
			p.Stop(context.Background())
			if got.String() != want.String() {
				t.Errorf("got %.200s, want %.200s", got.String(), want.String())
			}
		})
	})
}

// An attempt whose pieces are held costs a timer and no goroutine, and the bound on what it
// reports counts a delta once, however many pieces it has (I15).
func TestI15_HeldTextIsCheap(t *testing.T) {
	w := &recorder{}
	cfg := w.config()
	cfg.DeltaWait = time.Hour
	p := New(cfg)
	r := run(t, p, w, task("x", func(_ context.Context, task *action.Task) (action.Result, error) {
		before := runtime.NumGoroutine()
		for range MaxReported / reportBytes {
			task.Report.Delta("") // nothing to report
		}
		for range MaxReported / 4 {
			task.Report.Delta("abc") // less than 3 MiB with all that it costs
		}
		return action.Result{Output: runtime.NumGoroutine() - before}, nil
	}))
	p.Stop(context.Background())
	_, reports := w.recorded()
	size := 0
	for _, r := range reports {
		size += len(r.Text)
	}
	if want := MaxReported / 4 * 3; r.Dropped != 0 || size != want || len(reports) > want/maxDelta+2 {
		t.Errorf("%d reports of %d bytes, want %d; %d dropped", len(reports), size, want, r.Dropped)
	}
	if string(r.Output) != "0" {
		t.Errorf("%s more goroutines", r.Output)
	}
}

// BenchmarkDelta is what a piece of streamed text costs.
func BenchmarkDelta(b *testing.B) {
	for name, wait := range map[string]time.Duration{"joined": 0, "each": -1} {
		b.Run(name, func(b *testing.B) {
			done, reports := make(chan struct{}), 0
			p := New(Config{Done: func(Result) { close(done) }, Report: func(Report) { reports++ }, DeltaWait: wait})
			b.ReportAllocs()
			_ = p.Run(task("x", func(_ context.Context, task *action.Task) (action.Result, error) {
				a := task.Report.(*attempt)
				for b.Loop() {
					task.Report.Delta("token ")
					a.limiter.mu.Lock()
					a.limiter.bytes = 0
					a.limiter.mu.Unlock()
				}
				return action.Result{}, nil
			}))
			<-done
			b.ReportMetric(float64(reports)/float64(b.N), "reports/op")
			p.Stop(context.Background())
		})
	}
}
