// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"encoding/json"
	"os/exec"
	"testing"
)

// conforms checks that a command is a remote worker.
func conforms(t *testing.T, command ...string) {
	t.Helper()
	if testing.Short() {
		t.Skip("long: runs without -short")
	}
	out, talk, code := inProcess("", append([]string{"worker", "conform", "-o", "json", "--"}, command...)...)
	var found conformance
	if err := json.Unmarshal([]byte(out), &found); err != nil {
		t.Fatalf("%v\n%s%s", err, out, talk)
	}
	if code != 0 || found.Failed > 0 || found.Passed < 16 {
		t.Errorf("exit %d, %d passed, %d failed\n%s", code, found.Passed, found.Failed, talk)
	}
	for _, c := range found.Cases { // after the talk of the worker, so that the end of a log has them
		t.Logf("%6d ms  %s", c.MS, c.Name)
	}
	for _, c := range found.Cases {
		if !c.OK {
			t.Errorf("%s", caseLine(&c))
		}
	}
}

func TestWorkerInPythonConforms(t *testing.T) {
	t.Parallel() // it waits most of the time
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("there is no python3")
	}
	conforms(t, "python3", "-B", "../../workers/python/conform.py")
}

func TestWorkerInJavaScriptConforms(t *testing.T) {
	t.Parallel() // it waits most of the time
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("there is no node")
	}
	conforms(t, "node", "../../workers/typescript/conform.js")
}
