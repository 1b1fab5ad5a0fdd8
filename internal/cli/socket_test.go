// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
)

// deaf holds a directory's socket and never answers: it hangs up, or it is
// silent as a stopped process is.
func deaf(t *testing.T, hangUp bool) (dir string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "deaf")
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("unix", filepath.Join(dir, socketName))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close(); _ = os.RemoveAll(dir) })
	if hangUp {
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				_ = c.Close()
			}
		}()
	}
	return dir
}

// Exit 9: the process that holds the directory is there and does not answer
// (SERVER_UNREACHABLE).
func TestHolderDoesNotAnswer(t *testing.T) {
	dir := deaf(t, true)
	if err := os.WriteFile(filepath.Join(dir, "lock"), []byte("4711\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"runs", "list"}, {"runs", "cancel", "@last"}} {
		_, talk, code := roux(t, []string{"ROUX_DATA=" + dir}, args...)
		if code != 9 || !strings.Contains(talk, "SERVER_UNREACHABLE") || !strings.Contains(talk, "process 4711 does not answer") {
			t.Errorf("roux %s: exit %d\n%s", strings.Join(args, " "), code, talk)
		}
	}
}

// A stopped process takes the connection and says nothing: whoever asks it does
// not wait for ever.
func TestHolderIsSilent(t *testing.T) {
	defer func(d time.Duration) { answerTime = d }(answerTime)
	answerTime = 50 * time.Millisecond
	r := dial(t.Context(), deaf(t, false))
	if r == nil {
		t.Fatal("it did not take the connection")
	}
	done := make(chan error, 1)
	go func() {
		_, err := r.List(t.Context(), store.Query{})
		done <- err
	}()
	select {
	case err := <-done:
		if fault.CodeOf(err) != fault.ServerUnreachable {
			t.Errorf("List = %v, want SERVER_UNREACHABLE", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it waits for ever")
	}
}
