// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/pressly/goose/v3"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store/sqlite/conn"
)

//go:embed migrations/*.sql
var migrations embed.FS

// schemaVersion is the number of the newest file in migrations.
const schemaVersion = 16

// oldestSQLite is the first release without a bug by which two connections, one writing
// and one checkpointing, corrupt the write-ahead log. This package uses two such
// connections all the time.
var oldestSQLite = [3]int{3, 51, 3}

// migrate updates the schema to this release's, on a connection of its own.
func (s *Store) migrate(ctx context.Context, opt Options) (err error) {
	if err := registerSum(); err != nil {
		return err
	}
	db, err := sql.Open("sqlite", s.dsn(opt, synchronous(), "busy_timeout(5000)"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	one, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	if err := setFormat(ctx, one); err != nil {
		return err
	}
	if err := one.Raw(conn.KeepWAL); err != nil {
		return err
	}
	var library string
	if err := one.QueryRowContext(ctx, s.t.libraryVersion).Scan(&library); err != nil {
		return err
	}
	if err := safeSQLite(library); err != nil {
		return err
	}
	version, err := s.storedVersion(ctx, one)
	if err != nil {
		return err
	}
	if err := one.Close(); err != nil { // goose wants the one connection
		return err
	}
	switch {
	case version > schemaVersion:
		return fault.New(fault.StoreNewer, "a newer release of Roux wrote %s (schema version %d, this release knows %d): use that release, or another directory", s.path, version, schemaVersion)
	case version == schemaVersion:
		return nil
	}
	return migrateUp(ctx, db, s.path)
}

// migrateUp applies the migrations that db does not have.
func migrateUp(ctx context.Context, db *sql.DB, path string) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, files,
		goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
	if err != nil {
		return err
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("bring the schema of %s to version %d: %w", path, schemaVersion, err)
	}
	return nil
}

// setFormat sets the page size of a new file, which never changes, and then the
// write-ahead log. In the other order the page size would have no effect. These are
// statements because the driver sorts the pragmas of a DSN.
func setFormat(ctx context.Context, conn *sql.Conn) error {
	for _, pragma := range []string{fmt.Sprintf(`PRAGMA page_size = %d`, pageSize), `PRAGMA journal_mode = WAL`} {
		if _, err := conn.ExecContext(ctx, pragma); err != nil {
			return err
		}
	}
	return nil
}

// storedVersion returns the version of the schema in the file, 0 for a new file.
func (s *Store) storedVersion(ctx context.Context, conn *sql.Conn) (v int64, err error) {
	var tables int
	err = conn.QueryRowContext(ctx, s.t.hasVersion).Scan(&tables)
	if err != nil || tables == 0 {
		return 0, err
	}
	err = conn.QueryRowContext(ctx, s.t.schemaVersion).Scan(&v)
	return v, err
}

// safeSQLite refuses a SQLite library that can lose data here.
func safeSQLite(version string) error {
	have := strings.SplitN(version, ".", 3)
	for i, want := range oldestSQLite {
		n := -1
		if i < len(have) {
			if v, err := strconv.Atoi(have[i]); err == nil {
				n = v
			}
		}
		if n > want {
			return nil
		}
		if n < want {
			return fault.New(fault.StoreUnsafe, "SQLite %s in this build can corrupt data: build with %d.%d.%d or later", version, oldestSQLite[0], oldestSQLite[1], oldestSQLite[2])
		}
	}
	return nil
}

// Settings returns what the writing connection reports about itself, by the names of
// SQLite's pragmas. A published measurement needs them.
func (s *Store) Settings() (map[string]string, error) {
	s.w.Lock()
	defer s.w.Unlock()
	if err := s.writable(); err != nil {
		return nil, err
	}
	settings := map[string]string{}
	for name, query := range map[string]string{
		"sqlite":       s.t.libraryVersion,
		"synchronous":  s.t.synchronous,
		"journal_mode": s.t.journalMode,
		"page_size":    s.t.pageSize,
	} {
		value, err := s.db.Value(query)
		if err != nil {
			return nil, fmt.Errorf("read the setting %s: %w", name, err)
		}
		settings[name] = value
	}
	return settings, nil
}
