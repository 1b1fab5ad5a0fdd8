// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/datadir"
)

// shortDir is a directory whose path leaves room for the names of sockets.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rx")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// deaf holds the socket of a directory and closes every connection.
func deaf(t *testing.T) (dir string) {
	t.Helper()
	dir = shortDir(t)
	ln, err := net.Listen("unix", filepath.Join(dir, datadir.Socket))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	return dir
}

// Exit 9: the process that holds the directory is there and does not answer
// (SERVER_UNREACHABLE).
func TestHolderDoesNotAnswer(t *testing.T) {
	dir := deaf(t)
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
