// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	_ "modernc.org/sqlite" // the driver of the store
)

// A bareServer is the floor of a server: a handler of net/http that commits the bytes of a
// request to a SQLite file, with the journal mode and the synchronous setting of the
// store. Requests that arrive during a commit share the next one.
type bareServer struct {
	db   *sql.DB
	data []byte // of each request
	join chan chan error
}

// maxShared is how many requests share a commit at most.
const maxShared = 1024

// bare is the main function of the floor's process. It answers on the port that it
// reports until its standard input ends.
func (p *part) bare(ctx context.Context) (f figures, err error) {
	s := &bareServer{data: make([]byte, p.n), join: make(chan chan error, maxShared)}
	if s.db, err = sql.Open("sqlite", filepath.Join(p.dir, "floor.db")+"?_pragma=journal_mode(wal)&_pragma=synchronous(full)"); err != nil {
		return nil, err
	}
	s.db.SetMaxOpenConns(1)
	if _, err := s.db.ExecContext(ctx, "CREATE TABLE bytes (id INTEGER PRIMARY KEY, data BLOB)"); err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go s.commits(ctx)
	server := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(ln) }() // until the process is killed
	return figures{"port": float64(ln.Addr().(*net.TCPAddr).Port)}, nil
}

var joins = sync.Pool{New: func() any { return make(chan error, 1) }}

// ServeHTTP answers GET at once, and other requests once their bytes are durable.
func (s *bareServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodGet {
		_, _ = w.Write(s.data) // an error means that the client has gone
		return
	}
	_, err := io.Copy(io.Discard, r.Body)
	if err == nil {
		done := joins.Get().(chan error)
		s.join <- done
		err = <-done
		joins.Put(done)
	}
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusAccepted)
	_, _ = io.WriteString(w, `{"executionId":"run_01JXXXXXXXXXXXXXXXXXXXXXXX","status":"pending"}`+"\n")
}

func (s *bareServer) commits(ctx context.Context) {
	var group []chan error
	for {
		select {
		case <-ctx.Done():
			return
		case done := <-s.join:
			group = append(group[:0], done)
		}
		for len(group) < maxShared && len(s.join) > 0 {
			group = append(group, <-s.join)
		}
		err := s.commit(ctx, len(group))
		for _, done := range group {
			done <- err
		}
	}
}

func (s *bareServer) commit(ctx context.Context, n int) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	insert, err := tx.PrepareContext(ctx, "INSERT INTO bytes (data) VALUES (?)")
	for i := 0; i < n && err == nil; i++ {
		_, err = insert.ExecContext(ctx, s.data)
	}
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}
