// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// shown returns the previews of a run, and the statuses that it had.
func (o *outside) shown(run string) (previews, statuses []string) {
	o.t.Helper()
	err := store.EachEvent(o.t.Context(), o.st, store.Key{Account: acc, Run: run}, 0, func(ev *journal.Event) error {
		switch ev.Kind {
		case journal.EvNodePreview:
			previews = append(previews, string(ev.Data))
		case journal.EvRunStatus:
			statuses = append(statuses, ev.Status().String())
		}
		return nil
	})
	if err != nil {
		o.t.Fatal(err)
	}
	return previews, statuses
}

func (o *outside) wantShown(run string, want ...string) {
	o.t.Helper()
	synctest.Wait()
	if got, _ := o.shown(run); !slices.Equal(got, want) {
		o.t.Errorf("previews %q, want %q", got, want)
	}
}

func (s *service) show(preview any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.preview = preview
}

// asked is how often it was polled.
func (s *service) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.polled)
}

// putFiles keeps what was stored in it.
type putFiles struct {
	action.Files
	stored atomic.Value // []byte
}

func (f *putFiles) Put(_ context.Context, r io.Reader, name, mime string) (action.FileInfo, error) {
	data, err := io.ReadAll(r)
	f.stored.Store(data)
	return action.FileInfo{Hash: "sha256_" + strings.Repeat("a", 64), Name: name, MimeType: mime, Size: int64(len(data))}, err
}

// X79, X165: what a service has made so far is shown when it is asked: what is large as a file, and the
// run has the status of a preview. What was shown last is not shown again, also after a restart: a poll
// that finds it writes nothing and loads no run.
func TestX79_X165_PreviewsOfPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st, files := newService(), memory.New(memory.Options{}), &putFiles{}
		cfg := Config{Files: func(string) action.Files { return files }}
		o := openOutside(t, st, s, cfg)
		run := o.begin(submitAndGoOn)
		picture := []byte("a picture \x00")
		s.show(map[string]any{"frame": 1, "pictures": []any{"data:image/png;base64," + base64.StdEncoding.EncodeToString(picture), "https://elsewhere", "data:,x"}})
		first := `{"frame":1,"pictures":["sha256_` + strings.Repeat("a", 64) + `","https://elsewhere","data:,x"]}`
		time.Sleep(40 * time.Second) // it was asked once
		o.wantShown(run, first)
		if stored, _ := files.stored.Load().([]byte); !bytes.Equal(stored, picture) {
			t.Errorf("stored %q", stored)
		}
		quiet := func() {
			t.Helper()
			before, err := o.st.Stats(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			asked := s.asked()
			time.Sleep(250 * time.Second)
			after, err := o.st.Stats(t.Context())
			if err != nil || after.Commits != before.Commits || o.Load().Loaded != 0 {
				t.Errorf("%d commits and %d runs in memory while nothing was new (%v)", after.Commits-before.Commits, o.Load().Loaded, err)
			}
			if n := s.asked(); n < asked+2 {
				t.Errorf("asked %d times", n-asked)
			}
		}
		quiet()
		o.stop()
		o.crash()
		st = st.Crash(0)
		o = openOutside(t, st, s, cfg)
		time.Sleep(time.Second)
		quiet()
		s.show("2")
		time.Sleep(150 * time.Second)
		o.wantShown(run, first, `"2"`)
		s.end(s.list()[0], "hello")
		o.wantEnd(run, "completed")
		if _, statuses := o.shown(run); fmt.Sprint(statuses) != "[running preview running]" {
			t.Errorf("statuses %v", statuses)
		}
	})
}

// X165: a webhook can bring a preview. One that comes twice shows it once, and one that comes after the
// end shows nothing.
func TestX165_PreviewsOfWebhooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := openOutside(t, memory.New(memory.Options{}), newService(), Config{})
		run := o.begin(submitAndGoOn)
		synctest.Wait()
		id := o.svc.list()[0]
		for n, body := range []string{"preview 1", "preview 1", "preview 2", "preview 1", "hello", "preview 3"} {
			o.deliver(id, fmt.Sprint(n), body)
			synctest.Wait()
		}
		o.wantEnd(run, "completed")
		o.wantShown(run, `"1"`, `"2"`, `"1"`)
		o.wantRecords("job-ended 1, delivery 6")
	})
}

// asking counts what a moderator is asked.
type asking struct {
	censor
	n atomic.Int64
}

func (a *asking) Check(ctx context.Context, m *action.Moderation) (action.Verdict, error) {
	a.n.Add(1)
	return a.censor.Check(ctx, m)
}

// A30: a preview of a job whose output is moderated is shown only if it passes; moderators are asked once
// about each, the job goes on, and its output has a verdict of its own. With hold none is shown.
func TestA30_PreviewsOfJobs(t *testing.T) {
	for moderation, want := range map[string][]string{"{phase: output}": {`"well"`}, "{phase: output, stream: hold}": nil} {
		t.Run(moderation, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ask, st := &asking{}, memory.New(memory.Options{})
				o := openOutside(t, st, newService(), moderatedBy(ask))
				run := o.begin(strings.Replace(submitAndGoOn, "{id: a,", "{id: a, moderation: "+moderation+",", 1))
				o.svc.show("a bad frame")
				time.Sleep(400 * time.Second)
				o.wantShown(run)
				if n := ask.n.Load(); n > 1 {
					t.Errorf("asked %d times about one preview", n)
				}
				o.svc.show("well")
				time.Sleep(150 * time.Second)
				o.wantShown(run, want...)
				o.svc.end(o.svc.list()[0], "hello")
				o.wantEnd(run, "completed")
				o.wantShown(run, want...)
			})
		})
	}
}

// I15: previews that are too large, alone or together, are not shown, and the job goes on.
func TestI15_PreviewsOfJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := openOutside(t, memory.New(memory.Options{}), newService(), Config{})
		run := o.begin(submitAndGoOn)
		synctest.Wait()
		id, large := o.svc.list()[0], strings.Repeat("x", 900_000)
		for n := range 10 {
			o.deliver(id, fmt.Sprint(n), fmt.Sprintf("preview %d%s", n, large))
			synctest.Wait()
		}
		o.deliver(id, "one", "preview "+strings.Repeat("x", 1<<20-10))
		synctest.Wait()
		if got, _ := o.shown(run); len(got) != 4 {
			t.Errorf("%d were shown, want 4", len(got))
		}
		o.svc.show(strings.Repeat("x", 5<<20))
		time.Sleep(40 * time.Second)
		o.deliver(id, "end", "hello")
		o.wantEnd(run, "completed")
		if got, _ := o.shown(run); len(got) != 4 {
			t.Errorf("%d were shown, want 4", len(got))
		}
	})
}
