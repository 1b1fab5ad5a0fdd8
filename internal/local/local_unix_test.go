// SPDX-License-Identifier: Apache-2.0

//go:build unix

package local

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// At most as many connections are served at a time as there are slots. A connection
// that is closed frees its slot.
func TestSlots(t *testing.T) {
	in, err := net.Listen("unix", filepath.Join(shortDir(t), "s"))
	if err != nil {
		t.Fatal(err)
	}
	d := &peerCheck{Listener: in, slots: make(chan struct{}, 2), closed: make(chan struct{}), remove: func() {}}
	var now, most atomic.Int64
	served, leave := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := d.Accept()
			if err != nil {
				if !errors.Is(err, net.ErrClosed) {
					t.Error(err)
				}
				return
			}
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			all.Go(func() {
				served <- struct{}{}
				<-leave
				now.Add(-1)
				_ = c.Close()
				_ = c.Close() // a second Close frees no second slot
			})
		}
	})
	for range 6 {
		c, err := net.Dial("unix", in.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	for range 2 {
		<-served
	}
	for range 4 {
		leave <- struct{}{}
		<-served
	}
	if most.Load() != 2 {
		t.Errorf("%d were served at a time, want 2", most.Load())
	}
	if err := d.Close(); err != nil { // while all slots are taken
		t.Fatal(err)
	}
	close(leave)
	all.Wait()
}

// processOf accepts nothing but a process id in the lock file, and reads no more than it
// needs.
func TestProcessOf(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]int{
		"4711\n": 4711, "": 0, "-5": 0, "\x1b[31m": 0, "12 \x1b]0;x\x07": 0, "12" + strings.Repeat(" ", 64) + "what nobody reads": 12, strings.Repeat("1", 1<<20): 0,
	} {
		if err := os.WriteFile(filepath.Join(dir, "lock"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := processOf(dir); got != want {
			t.Errorf("processOf(%.20q) = %d, want %d", text, got, want)
		}
	}
}
