// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"path/filepath"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/backup"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/rest"
	"github.com/roux-engine/roux/internal/retention"
	"github.com/roux-engine/roux/internal/store"
)

// operatorRoutes are the operations through which commands of the operator see the store of a
// server, and look after it.
func (s *Server) operatorRoutes() {
	rest.Handle(s.rest, rest.Op("feed-changes", http.MethodGet, "/v1/changes", "List changes of the account as a store has them, the oldest first"), rest.Needs(access.RunsRead), s.changes)
	admin := rest.Needs(access.ServerAdmin)
	admin.Once = rest.OnceNot
	rest.Handle(s.rest, rest.Op("server-load", http.MethodGet, "/v1/server", "Get what the server is doing now"), admin, s.load)
	plan := admin
	plan.Produces = []string{"application/json"}
	rest.Handle(s.rest, rest.Op("server-plan", http.MethodGet, "/v1/plans/{plan}", "Get a plan by its key, whichever run has it"), plan, s.planByKey)
	rest.Handle(s.rest, rest.Op("server-clean", http.MethodPost, "/v1/retention/clean", "Remove now what is no longer kept, of all accounts"), admin, s.clean)
	copied := admin
	copied.Stream = true
	o := rest.Op("server-backup", http.MethodPost, "/v1/backups", "Make a backup of the data directory in a directory of this machine")
	o.Description = "Over the socket of the data directory only, because the body names a path. The answer has a line of JSON about every half second: `progress`, and in the last line `done`, the manifest of the backup, or `error`. A backup ends when its client has gone."
	o.Responses = map[string]*huma.Response{"200": {
		Description: "Lines of JSON.",
		Content:     map[string]*huma.MediaType{"application/x-ndjson": {Schema: &huma.Schema{Type: huma.TypeString}}},
	}}
	rest.Handle(s.rest, o, copied, s.backup)
}

// A ServerLoad is what a server is doing now.
type ServerLoad struct {
	Version string    `json:"version" doc:"Release of the server."`
	Now     time.Time `json:"now"`
	node.Load
}

func (s *Server) load(ctx context.Context, _ *struct{}) (*struct{ Body ServerLoad }, error) {
	l, err := s.cfg.Node.Load(ctx)
	if err != nil {
		return nil, err
	}
	return &struct{ Body ServerLoad }{ServerLoad{s.cfg.Release, s.cfg.Now().UTC(), *l}}, nil
}

type changesIn struct {
	After uint64 `query:"after" maximum:"9007199254740991" doc:"Only changes after this number."`
	Limit int    `query:"limit" default:"50" minimum:"0" maximum:"1000" doc:"How many are wanted."`
}

// A StoredChange is a change with all that a store has of it.
type StoredChange struct {
	Change
	Imported bool   `json:"imported,omitempty" doc:"The run came in a bundle, and counts as quarantined."`
	Removed  bool   `json:"removed,omitempty" doc:"The run is gone, with all runs below it."`
	Hidden   bool   `json:"hidden,omitempty" doc:"A user has deleted the run: it is still stored, and lists hide it."`
	Key      string `json:"key,omitempty" doc:"Of an entry."`
}

// Changes are a part of the changes of an account.
type Changes struct {
	Changes []StoredChange `json:"changes"`
	Last    uint64         `json:"last" doc:"Number of the last change."`
	Expired uint64         `json:"expired" doc:"Number of the last change that is no longer kept."`
}

func (s *Server) changes(ctx context.Context, in *changesIn) (*struct{ Body Changes }, error) {
	last, expired, err := s.cfg.Node.Store.Newest(ctx, rest.Account(ctx))
	if err != nil {
		return nil, err
	}
	out := Changes{Changes: []StoredChange{}, Last: last, Expired: expired}
	var found []store.Change
	if in.Limit > 0 {
		if found, err = s.cfg.Node.Store.Changes(ctx, rest.Account(ctx), in.After, in.Limit); err != nil {
			return nil, err
		}
	}
	for i := range found {
		c := &found[i]
		shown := StoredChange{Change: changeOf(c), Imported: c.Imported, Removed: c.Deleted, Hidden: c.Hidden, Key: c.Key}
		shown.State = c.Status
		out.Changes = append(out.Changes, shown)
	}
	return &struct{ Body Changes }{out}, nil
}

type planIn struct {
	Key string `path:"plan" maxLength:"200" doc:"Key of a plan, as a run has it."`
}

func (s *Server) planByKey(ctx context.Context, in *planIn) (*planFound, error) {
	text, err := s.cfg.Node.Store.Plan(ctx, in.Key)
	return &planFound{ContentType: "application/json", Body: text}, err
}

type cleanIn struct {
	DryRun bool `query:"dryRun" doc:"Remove nothing, and say what would be removed."`
}

func (s *Server) clean(ctx context.Context, in *cleanIn) (*struct{ Body retention.Removed }, error) {
	removed, err := s.cfg.Node.Engine.Clean(ctx, in.DryRun)
	return &struct{ Body retention.Removed }{removed}, err
}

type backupIn struct {
	Body struct {
		Directory string `json:"directory" maxLength:"4096" doc:"Absolute path of the directory of backups."`
	}
}

// A BackupLine is a line of the answer to a request for a backup. The last one has Done or
// Error; those before it show that the server is at work.
type BackupLine struct {
	Progress *backup.Progress `json:"progress,omitempty"`
	Done     *backup.Manifest `json:"done,omitempty"`
	Error    *rest.Problem    `json:"error,omitempty"`
}

// backup makes a backup for the user of the data directory. Whoever has a key must not choose a
// path of the machine that the server writes to.
func (s *Server) backup(ctx context.Context, in *backupIn) (*streamOut, error) {
	switch {
	case !access.From(ctx).Local:
		err := fault.New(fault.Forbidden, "backups are made through the socket of the data directory only")
		err.Remedy = "Run `roux backup --data DIR` on the machine of the server; it works while the server runs."
		return nil, err
	case !filepath.IsAbs(in.Body.Directory):
		return nil, fault.New(fault.RequestInvalid, "directory: want an absolute path, not %.90q", in.Body.Directory)
	}
	lasting, cancel, end, ok := s.enter(ctx)
	if !ok {
		return nil, errStops
	}
	return &streamOut{func(h huma.Context) {
		defer func() { end(nil) }()
		defer cancel(nil)
		h.SetHeader("Content-Type", "application/x-ndjson")
		h.SetStatus(http.StatusOK)
		s.sendBackup(lasting, cancel, in.Body.Directory)
	}}, nil
}

// sendBackup makes a backup and tells the client how far it is.
func (s *Server) sendBackup(ctx context.Context, cancel context.CancelCauseFunc, to string) {
	latest, done := make(chan backup.Progress, 1), make(chan BackupLine, 1)
	go func() {
		m, err := s.cfg.Backup(ctx, to, func(p backup.Progress) {
			select {
			case <-latest: // only the newest counts
			default:
			}
			latest <- p
		})
		if err != nil {
			done <- BackupLine{Error: s.rest.Problem(ctx, err)}
			return
		}
		done <- BackupLine{Done: m}
	}()
	w := rest.From(ctx).Writer
	out, ctl := json.NewEncoder(w), http.NewResponseController(w)
	send := func(line BackupLine) error {
		return errors.Join(ctl.SetWriteDeadline(time.Now().Add(s.times.slowest)), out.Encode(line), ctl.Flush())
	}
	tick := time.NewTicker(s.times.backup)
	defer tick.Stop()
	line := BackupLine{Progress: new(backup.Progress)}
	for gone := false; ; {
		select {
		case last := <-done:
			_ = send(last) // the client may have gone
			return
		case <-tick.C:
			select {
			case *line.Progress = <-latest:
			default:
			}
			if !gone && send(line) != nil {
				gone = true
				cancel(nil) // and wait until nothing of the backup is left
			}
		}
	}
}
