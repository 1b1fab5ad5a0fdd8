// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/roux-engine/roux/internal/config"
	"github.com/roux-engine/roux/internal/confine"
	"github.com/roux-engine/roux/internal/local"
	"github.com/roux-engine/roux/internal/media"
)

// account is the account whose runs and files commands handle by default.
const account = config.Account

func TestMain(m *testing.M) {
	media.Dispatch()
	confine.Dispatch()
	testscript.Main(m, map[string]func(){"roux": rouxForTests})
}

// rouxForTests is the binary with a few more actions.
func rouxForTests() {
	code := execute(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr, testActions())
	if note := os.Getenv("PEAK"); note != "" {
		status, err := os.ReadFile("/proc/self/status")
		if err == nil {
			err = os.WriteFile(note, status, 0o600)
		}
		if err != nil {
			panic(err)
		}
	}
	os.Exit(code)
}

// TestScripts runs the transcripts: every command and every error a user meets.
func TestScripts(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("ROOT", root)
			env.Setenv("ROUX_DATA", filepath.Join(env.WorkDir, "data"))
			env.Setenv("HOME", env.WorkDir)
			return nil
		},
		Condition: func(cond string) (bool, error) {
			if cond == "root" {
				return os.Geteuid() == 0, nil
			}
			return false, errors.New("unknown condition " + cond)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"code":    scriptCode,
			"until":   scriptUntil,
			"held":    scriptHeld,
			"pick":    scriptPick,
			"server":  scriptServer,
			"hits":    scriptHits,
			"hostile": scriptHostile,
		},
		RequireExplicitExec: true,
	})
}

// scriptCode is `code N command …`: the command must exit with N.
func scriptCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N command …")
	}
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var e *exec.ExitError
		if !errors.As(err, &e) {
			ts.Fatalf("%v", err)
		}
		got = e.ExitCode()
	}
	if want := args[0]; want != strconv.Itoa(got) {
		ts.Fatalf("exit code %d, want %s", got, want)
	}
}

// scriptUntil is `until PATTERN command …`: the command is repeated until its
// output matches. The command itself takes long enough for this not to spin.
func scriptUntil(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until PATTERN command …")
	}
	want, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	for deadline := time.Now().Add(20 * time.Second); ; {
		err := ts.Exec(args[1], args[2:]...)
		if out := ts.ReadFile("stdout") + ts.ReadFile("stderr"); want.MatchString(out) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("no match for %s; the last try: %v", args[0], err)
		}
	}
}

// scriptHeld is `held`: waits until a process holds the data directory and answers. A command
// that is repeated until it sees what a process in the background has done would itself hold
// the directory again and again, which keeps that process from it.
func scriptHeld(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: held")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for local.Find(ctx, ts.Getenv("ROUX_DATA")) == nil {
		if !pause(ctx, 10*time.Millisecond) {
			ts.Fatalf("no process holds the data directory")
		}
	}
}

// scriptPick is `pick NAME PATTERN`: the first group of the pattern in the last
// standard output becomes a variable.
func scriptPick(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: pick NAME PATTERN")
	}
	m := regexp.MustCompile("(?m)" + args[1]).FindStringSubmatch(ts.ReadFile("stdout"))
	if len(m) < 2 {
		ts.Fatalf("no match for %s", args[1])
	}
	ts.Setenv(args[0], m[1])
}
