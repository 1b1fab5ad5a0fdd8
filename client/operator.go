// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/roux-engine/roux/fault"
)

// An Operator looks after the server. Its operations need a key with the role admin.
type Operator struct{ c *Client }

// Plan returns a plan by its key, whichever run has it, as it is stored.
func (o *Operator) Plan(ctx context.Context, key string) (json.RawMessage, error) {
	a, err := o.c.do(ctx, at(http.MethodGet, "v1", "plans", key), nil)
	if err != nil {
		return nil, err
	}
	return a.body, nil
}

// Removed is what was removed, or what a dry run would remove.
type Removed struct {
	Runs            int      `json:"runs"` // those below them are not counted
	IdempotencyKeys int      `json:"idempotencyKeys"`
	Records         int      `json:"records"`
	Files           int      `json:"files"`
	Bytes           int64    `json:"bytes"`
	RunIDs          []string `json:"runIds"`     // the first 1,000
	FileHashes      []string `json:"fileHashes"` // the first 1,000
}

// Clean removes now what is no longer kept, of all accounts; a dry run removes nothing.
func (o *Operator) Clean(ctx context.Context, dryRun bool) (*Removed, error) {
	cl := at(http.MethodPost, "v1", "retention", "clean")
	if dryRun {
		cl.with("dryRun", "true")
	}
	out := new(Removed)
	_, err := o.c.do(ctx, cl, out)
	return result(out, err)
}

// A BackupProgress says how far a backup is.
type BackupProgress struct {
	What  string `json:"what"`  // what is being copied: files or database
	Done  int64  `json:"done"`  // bytes of files; of a database its share
	Total int64  `json:"total"` // 0: not known
}

// Backup makes a backup of the data directory in a directory of backups, an absolute path on
// the machine of the server, and returns the manifest of the backup. It works over the socket
// of a data directory only. progress is called now and then.
func (o *Operator) Backup(ctx context.Context, directory string, progress func(BackupProgress)) (json.RawMessage, error) {
	cl, err := at(http.MethodPost, "v1", "backups").send(map[string]string{"directory": directory})
	if err != nil {
		return nil, err
	}
	cl.once = true
	res, err := o.c.open(ctx, cl)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	for lines := json.NewDecoder(res.Body); ; {
		var line struct {
			Progress *BackupProgress `json:"progress"`
			Done     json.RawMessage `json:"done"`
			Error    *Problem        `json:"error"`
		}
		if err := lines.Decode(&line); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, unreachable(ctx, cl, err)
		}
		switch {
		case line.Error != nil:
			if _, known := fault.Lookup(line.Error.Code); !known {
				return nil, unreachable(ctx, cl, errors.New("it answered with an unknown error"))
			}
			return nil, line.Error.fault()
		case line.Done != nil:
			return line.Done, nil
		case line.Progress != nil:
			progress(*line.Progress)
		}
	}
}
