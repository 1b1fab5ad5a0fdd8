// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/roux-engine/roux/internal/store/sqlite/conn"
)

// A bareServer is the floor of a server: a handler of net/http that commits the bytes of a
// request to a SQLite file, with the journal mode and the synchronous setting of the
// store. Requests that arrive during a commit share the next one.
type bareServer struct {
	begin, insert, commit, rollback *conn.Stmt

	data []byte // of each request
	join chan chan error
}

// maxShared is how many requests share a commit at most.
const maxShared = 1024

// bare is the main function of the floor's process. It answers on the port that it
// reports until its standard input ends.
func (p *part) bare(ctx context.Context) (f figures, err error) {
	s := &bareServer{data: make([]byte, p.n), join: make(chan chan error, maxShared)}
	db, err := conn.Open(filepath.Join(p.dir, "floor.db") + "?_pragma=journal_mode(wal)&_pragma=synchronous(full)")
	if err != nil {
		return nil, err
	}
	if err := db.Once("CREATE TABLE bytes (id INTEGER PRIMARY KEY, data BLOB)"); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	for _, q := range []struct {
		to   **conn.Stmt
		text string
	}{{&s.begin, "BEGIN IMMEDIATE"}, {&s.insert, "INSERT INTO bytes (data) VALUES (?)"}, {&s.commit, "COMMIT"}, {&s.rollback, "ROLLBACK"}} {
		if *q.to, err = db.Prepare(q.text); err != nil {
			return nil, errors.Join(err, db.Close())
		}
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
		err := s.write(len(group))
		for _, done := range group {
			done <- err
		}
	}
}

// write commits the bytes of n requests.
func (s *bareServer) write(n int) error {
	if _, err := s.begin.Exec(); err != nil {
		return err
	}
	for range n {
		if _, err := s.insert.Exec(s.data); err != nil {
			_, rerr := s.rollback.Exec()
			return errors.Join(err, rerr)
		}
	}
	_, err := s.commit.Exec()
	return err
}
