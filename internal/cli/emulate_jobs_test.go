// SPDX-License-Identifier: Apache-2.0

//go:build !small && !windows

package cli

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
)

// The emulator of jobs says where it is, carries out a job, and ends well with Ctrl-C.
func TestEmulateProvider(t *testing.T) {
	cmd := command(t, []string{"HOME=" + t.TempDir(), "ROUX_DATA="}, "emulate", "provider", "--listen", "127.0.0.1:0", "--mode", "silent", "--after", "1ms", "-o", "json")
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // if it has not ended
	var at emulatedJobs
	if err := json.NewDecoder(out).Decode(&at); err != nil || !strings.HasPrefix(at.Secret, "whsec_") || at.Mode != "silent" {
		t.Fatalf("it says %+v: %v", at, err)
	}
	resp, err := http.Post(at.URL+"/plain/v1/jobs", "application/json", strings.NewReader(`{"model": "m"}`))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		t.Errorf("a job is answered %s", resp.Status)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("it has ended with %v", err)
	}
}
