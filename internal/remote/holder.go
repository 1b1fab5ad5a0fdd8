// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/backup"
	"github.com/roux-engine/roux/internal/local"
)

// A Holder is the process that holds a data directory. Unlike the client of another server, it
// reads the runs and credits of all accounts: whoever reaches the socket could open the
// directory.
type Holder struct {
	*Server
	Process *local.Holder
}

// Dial connects to the process that holds dir, on behalf of an account; agent names this
// program. It returns nil when no process listens, or when that process may belong to another
// user.
func Dial(ctx context.Context, dir, account, agent string) *Holder {
	process := local.Find(ctx, dir)
	if process == nil {
		return nil
	}
	sent := process.Requests(slow)
	c, err := ClientOf(sent, account, agent)
	if err != nil {
		return nil // no such configuration exists
	}
	s := New(c, account, account)
	var mu sync.Mutex
	others := map[string]*client.Client{}
	s.of = func(name string) *client.Client {
		mu.Lock()
		defer mu.Unlock()
		if others[name] == nil {
			if c, err := ClientOf(sent, name, agent); err == nil {
				others[name] = c
			}
		}
		return others[name]
	}
	return &Holder{s, process}
}

// ClientOf returns a client whose requests t sends to the process that holds a data directory.
// Each is sent once: a process that has not answered has ended or is stopped.
func ClientOf(t http.RoundTripper, account, agent string) (*client.Client, error) {
	return client.New(client.Config{
		HTTP:   &http.Client{Transport: t},
		Header: http.Header{"Roux-Account": {account}}, UserAgent: agent, Attempts: 1,
	})
}

// slow reports whether the process reads or writes much before it answers a request: it syncs
// and inspects a new file, and hashes a stored one.
func slow(req *http.Request) bool {
	for _, path := range []string{"/v1/files", "/v1/backups", "/v1/retention"} {
		if strings.HasPrefix(req.URL.Path, path) {
			return true
		}
	}
	return false
}

// Backup is backup.Create for the data directory. to is an absolute path.
func (h *Holder) Backup(ctx context.Context, to string, progress func(backup.Progress)) (*backup.Manifest, error) {
	text, err := h.Client.Operator.Backup(ctx, to, func(p client.BackupProgress) {
		progress(backup.Progress{What: p.What, Done: p.Done, Total: p.Total})
	})
	if err != nil {
		return nil, err
	}
	m := new(backup.Manifest)
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fault.Wrap(fault.InternalError, err, "the manifest of the backup cannot be read: %v", err)
	}
	return m, nil
}
