// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/backup"
)

// Backups is what commands need to copy the data directory.
type Backups interface {
	// Backup is backup.Create for the data directory. to is an absolute path.
	Backup(ctx context.Context, to string, progress func(backup.Progress)) (*backup.Manifest, error)
}

// Backup implements Backups.
func (l *Local) Backup(ctx context.Context, to string, progress func(backup.Progress)) (*backup.Manifest, error) {
	return backup.Create(ctx, backup.Source{
		Dir: l.Dir, Store: l.Node.Store, Files: l.Node.Files, Keep: l.Node.Engine.Files().KeepFiles, Version: l.Version, Now: time.Now,
	}, to, progress)
}

// A backupLine is a line of the answer to a request for a backup. The last one has Done or
// Error; those before it show that the server is at work.
type backupLine struct {
	Progress backup.Progress  `json:"progress,omitzero"`
	Done     *backup.Manifest `json:"done,omitempty"`
	Error    *wireError       `json:"error,omitempty"`
}

// beat is the time between two lines of progress. Tests shorten it.
var beat = 500 * time.Millisecond

// serveBackup answers a request for a backup. The backup ends when its client has gone.
func serveBackup(w http.ResponseWriter, r *http.Request, of func(account string) Service) {
	in, err := decode(w, r)
	if err != nil {
		replyError(w, err)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	latest, done := make(chan backup.Progress, 1), make(chan backupLine, 1)
	go func() {
		m, err := of(in.Key.Account).Backup(ctx, in.Name, func(p backup.Progress) {
			select {
			case <-latest: // only the newest counts
			default:
			}
			latest <- p
		})
		if err != nil {
			done <- backupLine{Error: &wireError{Code: fault.CodeOf(err), Message: fault.Message(err), Remedy: fault.RemedyOf(err)}}
			return
		}
		done <- backupLine{Done: m}
	}()
	out, ctl := json.NewEncoder(w), http.NewResponseController(w)
	send := func(line backupLine) error {
		return errors.Join(ctl.SetWriteDeadline(time.Now().Add(callTime)), out.Encode(line), ctl.Flush())
	}
	tick := time.NewTicker(beat)
	defer tick.Stop()
	var line backupLine
	for gone := false; ; {
		select {
		case last := <-done:
			_ = send(last) // the client may have gone
			return
		case <-tick.C:
			select {
			case line.Progress = <-latest:
			default:
			}
			if !gone && send(line) != nil {
				gone = true
				cancel() // and wait until nothing of the backup is left
			}
		}
	}
}

// Backup implements Backups.
func (r *Remote) Backup(ctx context.Context, to string, progress func(backup.Progress)) (*backup.Manifest, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	res, err := r.post(ctx, r.patient(largeAnswer), "backup", request{Key: r.key(""), Name: to})
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	stall := newStallTimer(cancel)
	defer stall.rest()
	stall.wait(streamTime)
	if err := r.refusal(res); err != nil {
		return nil, err
	}
	lines := json.NewDecoder(res.Body)
	for {
		var line backupLine
		if err := lines.Decode(&line); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			if cause := context.Cause(ctx); cause != nil {
				return nil, cause
			}
			return nil, r.unreachable(err)
		}
		stall.wait(streamTime)
		switch {
		case line.Done != nil:
			return line.Done, nil
		case line.Error != nil:
			if _, known := fault.Lookup(line.Error.Code); !known {
				return nil, r.unreachable(errors.New("it answered with an unknown error"))
			}
			return nil, &fault.Error{Code: line.Error.Code, Msg: line.Error.Message, Remedy: line.Error.Remedy}
		default:
			progress(line.Progress)
		}
	}
}
