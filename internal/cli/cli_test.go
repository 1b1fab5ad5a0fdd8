// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/roux-engine/roux/internal/media"
)

func TestMain(m *testing.M) {
	media.Dispatch()
	testscript.Main(m, map[string]func(){
		"roux": func() {
			os.Exit(Main(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
		},
	})
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
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"code": scriptCode,
		},
		RequireExplicitExec: true,
	})
}

// scriptCode is `code N command …`: the command must exit with N.
func scriptCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N command …")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := 0
	if err != nil {
		var ok bool
		if got, ok = exitCode(err); !ok {
			ts.Fatalf("%v", err)
		}
	}
	if want := args[0]; want != itoa(got) {
		ts.Fatalf("exit code %d, want %s", got, want)
	}
}
