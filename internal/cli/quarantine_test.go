// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"strings"
	"testing"

	library "github.com/roux-engine/roux"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/sqlite"
)

// TestQuarantine checks that every view of a quarantined run shows the reason, and that
// the run does not continue until it is released.
func TestQuarantine(t *testing.T) {
	dir, env := dataEnv(t)
	p := start(t, env, "run", write(t, "wait.yaml", strings.Replace(waiting, "{signal: approved}", "{duration: 300ms}", 1)))
	p.until("node.waiting")
	p.signal(os.Kill)
	p.wait()

	ctx := t.Context()
	st, err := sqlite.Open(ctx, sqlite.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	epoch, err := st.Own(ctx)
	if err != nil {
		t.Fatal(err)
	}
	head, err := (&app{account: account}).findRun(ctx, st, "@last")
	if err != nil {
		t.Fatal(err)
	}
	head.Quarantine = "it stopped the process"
	verdicts, err := st.Commit(ctx, []store.Transition{{Key: head.Key, Epoch: epoch, Head: &head}})
	if err != nil || verdicts[0].Err != nil {
		t.Fatal(err, verdicts)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}

	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"runs", "list"}, 0, "quarantined"},
		{[]string{"runs", "get", "@last"}, 0, "it stopped the process; `roux runs release " + head.Run + "`"},
		{[]string{"resume"}, 0, "nothing to resume"},
		{[]string{"resume", "@last"}, fault.ExitConflict, "is quarantined: it stopped the process; `roux runs release " + head.Run + "` lets it go on"},
		// The run waited for a duration and not for a signal, so the step that reads
		// the signal's payload fails now.
		{[]string{"runs", "release", "@last"}, fault.ExitFailed, "node.completed      approve"},
		{[]string{"runs", "release", "@last"}, fault.ExitConflict, "is not quarantined: it is failed"},
	} {
		out, talk, code := roux(t, env, tt.args...)
		if code != tt.code || !strings.Contains(out+talk, tt.want) {
			t.Errorf("roux %s: exit %d, want %d and %q\n%s%s", strings.Join(tt.args, " "), code, tt.code, tt.want, out, talk)
		}
	}
}

// TestMarksInEveryView checks that every view shows a run's quarantine mark and the
// cancel in its journal, before and after a restart, even if the head is older than the
// journal. A mark that was removed does not return.
func TestMarksInEveryView(t *testing.T) {
	for _, tt := range []struct {
		name  string
		mark  string
		lags  bool
		list  string // the status that runs list shows before the restart
		fits  bool   // the head agrees with the journal, so doctor reports no difference
		after string // the status that runs list shows after the restart
	}{
		{"cancelled", "", false, "cancelled", true, "cancelled"},
		{"cancelled, the head lags", "", true, "running", false, "cancelled"},
		{"quarantined", "it stopped the process", false, "cancelled", true, "cancelled"},
		{"quarantined, the head lags", "it stopped the process", true, "running", false, "running"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("ROUX_DATA", dir)
			run := cancelledIn(t, dir, tt.mark, tt.lags)
			view := func(status string) {
				t.Helper()
				list, _, _ := inProcess("", "runs", "list", "-o", "json")
				if !strings.Contains(list, `"status": "`+status+`"`) || !strings.Contains(list, tt.mark) || tt.mark == "" && strings.Contains(list, `"quarantined"`) {
					t.Errorf("runs list shows %s, want %s and the mark %q", list, status, tt.mark)
				}
				get, _, _ := inProcess("", "runs", "get", run, "-o", "json")
				if !strings.Contains(get, `"status": "cancelled"`) || !strings.Contains(get, tt.mark) || tt.mark == "" && strings.Contains(get, `"quarantined"`) {
					t.Errorf("runs get shows %s, want cancelled and the mark %q", get, tt.mark)
				}
			}
			view(tt.list)
			out, _, code := inProcess("", "doctor")
			if (code == fault.ExitOK) != (tt.fits && tt.mark == "") || !strings.Contains(out, tt.mark) ||
				strings.Contains(out, "its journal says") == tt.fits {
				t.Errorf("doctor: exit %d: %s", code, out)
			}
			inProcess("", "resume")
			view(tt.after)
			if tt.mark == "" {
				return
			}
			if out, talk, _ := inProcess("", "runs", "release", run); strings.Contains(talk, "QUARANTINED") {
				t.Errorf("release: %s%s", out, talk)
			}
			tt.mark = ""
			view("cancelled")
			inProcess("", "resume")
			view("cancelled")
			if out, _, code := inProcess("", "doctor"); code != fault.ExitOK {
				t.Errorf("doctor after the release: exit %d: %s", code, out)
			}
		})
	}
}

// cancelledIn makes a cancelled run whose head has a quarantine mark. If lags is set,
// the head still has the status running.
func cancelledIn(t *testing.T, dir, mark string, lags bool) (run string) {
	t.Helper()
	ctx := t.Context()
	e, err := library.Open(ctx, library.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if run, err = e.Start(ctx, library.Request{Source: "r.yaml", Recipe: []byte("name: r\nsteps:\n  - {id: w, wait: {signal: go}}\n")}); err != nil {
		t.Fatal(err)
	}
	if err := e.Cancel(ctx, run, "enough"); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Wait(ctx, run); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	inHead(t, dir, run, func(head *store.Head) {
		head.Quarantine = mark
		if lags {
			head.Status, head.Ended, head.Code, head.Message = "running", 0, "", ""
		}
	})
	return run
}

// inHead changes the head of a run in a data directory that nobody holds.
func inHead(t *testing.T, dir, run string, change func(*store.Head)) {
	t.Helper()
	ctx := t.Context()
	st, err := sqlite.Open(ctx, sqlite.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	epoch, err := st.Own(ctx)
	if err != nil {
		t.Fatal(err)
	}
	head, err := st.Head(ctx, store.Key{Account: account, Run: run})
	if err != nil {
		t.Fatal(err)
	}
	change(&head)
	verdicts, err := st.Commit(ctx, []store.Transition{{Key: head.Key, Epoch: epoch, Head: &head}})
	if err != nil || verdicts[0].Err != nil {
		t.Fatal(err, verdicts)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
}
