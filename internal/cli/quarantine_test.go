// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/sqlite"
)

// TestQuarantine: a run that is set apart says why everywhere, rests, and goes
// on once it is released.
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
	head, err := findRun(ctx, st, "@last")
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
		{[]string{"resume", "@last"}, fault.ExitConflict, "is set apart: it stopped the process; `roux runs release " + head.Run + "` lets it go on"},
		// It waited for a time, so what reads a signal's payload fails now.
		{[]string{"runs", "release", "@last"}, fault.ExitFailed, "node.completed      approve"},
		{[]string{"runs", "release", "@last"}, fault.ExitConflict, "is not set apart: it is failed"},
	} {
		out, talk, code := roux(t, env, tt.args...)
		if code != tt.code || !strings.Contains(out+talk, tt.want) {
			t.Errorf("roux %s: exit %d, want %d and %q\n%s%s", strings.Join(tt.args, " "), code, tt.code, tt.want, out, talk)
		}
	}
}
