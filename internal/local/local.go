// SPDX-License-Identifier: Apache-2.0

// Package local has the socket of a data directory, through which commands reach the
// process that holds it.
//
// It decides where the socket is, how it is made, and who may connect: the user whose
// directory it is, on both sides. Whoever reaches it could open the directory, and is asked
// for no key. A command that finds no such process serves itself through a [Pipe]. The
// package knows nothing of what is said over a connection.
package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
)

// A Holder is the process that holds a data directory, as its socket reaches it.
type Holder struct{ dir, path string }

// Find returns the process that holds dir. It is nil when no process listens, or when that
// process may belong to another user.
func Find(ctx context.Context, dir string) *Holder {
	path, err := Socket(dir)
	if err != nil {
		return nil
	}
	h := &Holder{dir, path}
	c, err := h.Dial(ctx)
	if err != nil {
		return nil
	}
	_ = c.Close()
	return h
}

// Dial opens a connection. A process that takes it may have been stopped, and never answer.
func (h *Holder) Dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", h.path)
	if err != nil {
		return nil, err
	}
	// The socket may have been replaced since it was checked.
	if uid, ok := peerOf(c); ok && uid != os.Geteuid() {
		return nil, errors.Join(errors.New("it is another user's"), c.Close())
	}
	return c, nil
}

// transport returns a transport of requests to the process. An answer begins within d.
func (h *Holder) transport(d time.Duration) *http.Transport {
	return &http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return h.Dial(ctx) },
		DisableCompression: true, ResponseHeaderTimeout: d,
	}
}

// Unreachable describes why the process did not answer.
func (h *Holder) Unreachable(err error) *fault.Error {
	return fault.Wrap(fault.ServerUnreachable, err, "the data directory %s: %s does not answer: %v", h.dir, h, err)
}

// String names the process, for people.
func (h *Holder) String() string {
	if pid := processOf(h.dir); pid != 0 {
		return fmt.Sprint("process ", pid)
	}
	return "the process that holds it"
}

// processOf returns the id of the process that holds a directory according to its lock file;
// 0 when there is none.
func processOf(dir string) int {
	f, err := datadir.Open(filepath.Join(dir, datadir.Lock), os.O_RDONLY)
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, 32))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return max(pid, 0)
}
