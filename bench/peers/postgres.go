// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// A pgCluster is a temporary PostgreSQL server. It runs only while a peer that uses it is
// measured, and is restarted for each peer, so that the next one inherits neither its
// memory nor its unwritten pages.
type pgCluster struct {
	bin, dir string
	port     int
	as       *syscall.Credential
	cmd      *exec.Cmd
	ended    chan struct{}
	serial   int
}

// postgresSettings are the settings that differ from PostgreSQL's defaults; the first two
// are defaults that are set explicitly.
var postgresSettings = []string{
	"fsync=on", "synchronous_commit=on", "shared_buffers=512MB", "max_wal_size=4GB", "max_connections=200",
	"listen_addresses=127.0.0.1", "unix_socket_directories=",
}

// newCluster creates a database cluster below dir; the error says what is
// missing.
func newCluster(ctx context.Context, dir string) (*pgCluster, error) {
	bin, err := postgresPrograms()
	if err != nil {
		return nil, err
	}
	c := &pgCluster{bin: bin, dir: filepath.Join(dir, "postgres")}
	if err := os.Mkdir(c.dir, 0o700); err != nil {
		return nil, err
	}
	if os.Geteuid() == 0 {
		if c.as, err = databaseUser(); err != nil {
			return nil, err
		}
		if err := os.Chown(c.dir, int(c.as.Uid), int(c.as.Gid)); err != nil {
			return nil, err
		}
	}
	initdb := c.command(exec.CommandContext(ctx, filepath.Join(bin, "initdb"),
		"-D", c.dir, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"))
	if text, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, lastLines(text, 3))
	}
	return c, nil
}

// postgresPrograms finds the newest installed server.
func postgresPrograms() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil {
		return "", err
	}
	slices.SortFunc(found, func(a, b string) int { return release(a) - release(b) })
	if len(found) > 0 {
		return filepath.Dir(found[len(found)-1]), nil
	}
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path), nil
	}
	return "", errors.New("no PostgreSQL server on this machine (no initdb)")
}

func release(path string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
	return n
}

// databaseUser returns the user that runs the database if this process is root, because
// PostgreSQL refuses to run as root.
func databaseUser() (*syscall.Credential, error) {
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("PostgreSQL does not run as root, and there is neither a user postgres nor nobody")
}

func (c *pgCluster) command(cmd *exec.Cmd) *exec.Cmd {
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: c.as}
	return cmd
}

// start runs the server on a free port, under the given tracer if there is one, and waits
// until it accepts connections.
func (c *pgCluster) start(ctx context.Context, tracer []string) error {
	ports, err := freePorts(1)
	if err != nil {
		return err
	}
	c.port = ports[0]
	return c.run(ctx, tracer)
}

// run is like start, with the previous port.
func (c *pgCluster) run(ctx context.Context, tracer []string) error {
	args := append(slices.Clone(tracer), filepath.Join(c.bin, "postgres"), "-D", c.dir, "-p", strconv.Itoa(c.port))
	for _, s := range postgresSettings {
		args = append(args, "-c", s)
	}
	log, err := os.Create(filepath.Join(filepath.Dir(c.dir), "postgres.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	c.cmd = c.command(exec.Command(args[0], args[1:]...))
	c.cmd.Stdout, c.cmd.Stderr = log, log
	if err := c.cmd.Start(); err != nil {
		return err
	}
	c.ended = make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) {
		defer close(ended)
		_ = cmd.Wait() // its log is more useful than its exit status
	}(c.cmd, c.ended)
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		db, err := pgx.Connect(ctx, c.url("postgres"))
		if err == nil {
			return db.Close(ctx)
		}
		select {
		case <-c.ended:
			text, _ := os.ReadFile(log.Name())
			c.cmd = nil
			return fmt.Errorf("PostgreSQL ended: %s", lastLines(text, 3))
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("PostgreSQL takes no connections: %w", err), c.halt())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (c *pgCluster) url(database string) string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/%s?sslmode=disable", c.port, database)
}

// database creates an empty database.
func (c *pgCluster) database(ctx context.Context) (string, error) {
	db, err := pgx.Connect(ctx, c.url("postgres"))
	if err != nil {
		return "", err
	}
	defer db.Close(ctx)
	c.serial++
	name := fmt.Sprintf("peer%d", c.serial)
	if _, err := db.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		return "", err
	}
	return c.url(name), nil
}

// drop removes the databases of the peers, so that the disk does not fill up.
func (c *pgCluster) drop(ctx context.Context) error {
	db, err := pgx.Connect(ctx, c.url("postgres"))
	if err != nil {
		return err
	}
	defer db.Close(ctx)
	rows, err := db.Query(ctx, "SELECT datname FROM pg_database WHERE datname LIKE 'peer%'")
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, err := db.Exec(ctx, "DROP DATABASE "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)"); err != nil {
			return err
		}
	}
	return nil
}

// crash kills the server with all of its processes.
func (c *pgCluster) crash(ctx context.Context) error {
	if err := killTree(ctx, c.cmd.Process.Pid); err != nil {
		return err
	}
	<-c.ended
	c.cmd = nil
	return nil
}

// halt stops the server, and kills it if it does not stop soon.
func (c *pgCluster) halt() error {
	if c == nil || c.cmd == nil {
		return nil
	}
	group := -c.cmd.Process.Pid
	c.cmd = nil
	if err := syscall.Kill(group, syscall.SIGINT); err != nil {
		return err
	}
	select {
	case <-c.ended:
		return nil
	case <-time.After(20 * time.Second):
		return errors.Join(errors.New("PostgreSQL had to be killed"), syscall.Kill(group, syscall.SIGKILL))
	}
}
