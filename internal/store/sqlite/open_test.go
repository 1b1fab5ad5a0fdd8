// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
)

// wantRefusal fails the test unless Open(dir) returns an error with the code and all
// the words in its message.
func wantRefusal(t *testing.T, dir string, code fault.Code, words ...string) {
	t.Helper()
	s, err := Open(ctx, Options{Dir: dir})
	if err == nil {
		_ = s.Close()
	}
	if !errors.Is(err, code) {
		t.Fatalf("Open = %v, want %s", err, code)
	}
	for _, w := range words {
		if !strings.Contains(fault.Message(err), w) {
			t.Fatalf("Open says %q, want it to name %q", fault.Message(err), w)
		}
	}
}

// F35: while a process holds a directory, a second process is refused, and the error
// names the first.
func TestF35_SecondOpenNamesTheFirst(t *testing.T) {
	if dir := os.Getenv("ROUX_TEST_HOLD"); dir != "" { // the other process
		if s, err := Open(ctx, Options{Dir: dir, cold: true}); err != nil {
			fmt.Println(err)
		} else {
			fmt.Println("open")
			_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
			_ = s.path // killed here, without Close
		}
		return
	}
	dir := t.TempDir()
	other := exec.Command(os.Args[0], "-test.run=^TestF35_SecondOpenNamesTheFirst$")
	other.Env = append(os.Environ(), "ROUX_TEST_HOLD="+dir)
	in, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "open\n" {
		t.Fatalf("the other process says %q, %v", line, err)
	}
	wantRefusal(t, dir, fault.StoreLocked, fmt.Sprintf("process %d", other.Process.Pid), dir)
	if err := other.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = other.Wait() // it was killed
	s := open(t, dir)
	wantRefusal(t, dir, fault.StoreLocked, fmt.Sprintf("process %d", os.Getpid()))
	own(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, dir)
}

// I23: an older release refuses what a newer one wrote, and leaves it as it is.
func TestI23_NewerStoreIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	epoch := own(t, s)
	mustCommit(t, s, startOf(epoch, runKey(0), "1"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db := rawDB(t, dir)
	if _, err := db.Exec(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (?, 1)`, schemaVersion+1); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, dir, fault.StoreNewer, "newer release", "use that release, or another directory", dir)
	if _, err := db.Exec(`DELETE FROM goose_db_version WHERE version_id = ?`, schemaVersion+1); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, dir).Load(ctx, runKey(0)); err != nil {
		t.Fatal(err)
	}
}

func TestSchemaVersionIsTheNewestFile(t *testing.T) {
	files, err := migrations.ReadDir("migrations")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("%05d_", schemaVersion); len(files) != schemaVersion || !strings.HasPrefix(files[len(files)-1].Name(), want) {
		t.Fatalf("%d migrations, the last %s, want %d", len(files), files[len(files)-1].Name(), schemaVersion)
	}
}

func TestUnsafeSQLiteIsRefused(t *testing.T) {
	for version, safe := range map[string]bool{
		"3.51.3": true, "3.51.4": true, "3.53.0": true, "4.0.0": true, "3.51.10": true,
		"3.51.2": false, "3.50.9": false, "3.7.0": false, "2.99.99": false, "": false, "3.51": false, "3.x.1": false,
	} {
		if err := safeSQLite(version); (err == nil) != safe || (err != nil && !errors.Is(err, fault.StoreUnsafe)) {
			t.Errorf("SQLite %q: %v, want safe = %v", version, err, safe)
		}
	}
}

// Open checks the version of the SQLite library before it writes anything.
func TestUnsafeSQLiteIsRefusedByOpen(t *testing.T) {
	dir, oldest := t.TempDir(), oldestSQLite
	oldestSQLite[0] = 99
	wantRefusal(t, dir, fault.StoreUnsafe, "can corrupt data", "build with 99.")
	oldestSQLite = oldest
	own(t, open(t, dir))
}

func TestWhatIsNoStoreIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "roux.db"), []byte(strings.Repeat("not a database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, dir, fault.StoreCorrupt, filepath.Join(dir, "roux.db"), "backup")
	wantRefusal(t, "", fault.Usage, "want a path")
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, filepath.Join(file, "sub"), fault.StoreFailed, file)
}

// A path may contain characters that have a meaning in a URI or a DSN.
func TestOddPaths(t *testing.T) {
	for _, name := range []string{"with space", "a?b=c&d", "100%41#x", "ünï"} {
		dir := filepath.Join(t.TempDir(), name)
		s := open(t, dir)
		own(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if got := strings.Join(names, " "); got != "lock roux.db roux.db-shm roux.db-wal" {
			t.Fatalf("%s holds %s", dir, got)
		}
	}
}

// The log has the length warmWAL from opening on, keeps it when the store is closed and
// opened again, and does not grow under commits, because commits to a growing log take
// twice as long.
func TestLogStaysWarmAndShort(t *testing.T) {
	dir := t.TempDir()
	s := openWith(t, Options{Dir: dir})
	epoch := own(t, s)
	size := func() int64 {
		t.Helper()
		info, err := os.Stat(filepath.Join(dir, "roux.db-wal"))
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	if got := size(); got < warmWAL {
		t.Fatalf("the log of a new store has %d bytes, want %d", got, warmWAL)
	}
	mustCommit(t, s, startOf(epoch, runKey(0), "1"))
	frames := make([]byte, 256<<10)
	for n := uint64(2); n < 260; n++ { // 64 MiB
		tr := store.Transition{Key: runKey(0), Epoch: epoch, First: n, Last: n, Frames: frames}
		mustCommit(t, s, tr)
		s.w.Lock()
		due := s.up.pages >= checkpointPages
		s.w.Unlock()
		if due { // as the upkeep goroutine would, without waiting for it
			s.checkpoint()
		}
	}
	if got := size(); got > 2*warmWAL {
		t.Fatalf("the log has grown to %d bytes", got)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := size(); got < warmWAL {
		t.Fatalf("closing left %d bytes of the log", got)
	}
}
