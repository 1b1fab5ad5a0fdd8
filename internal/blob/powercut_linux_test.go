// SPDX-License-Identifier: Apache-2.0

package blob

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// F33: when Put returns, nothing of the file waits for a sync: not its bytes, not its
// facts, not its name, and not the name of any directory on the way to it, also if that
// was created by a process that was killed before it could sync. The test checks the
// system calls of a real process.
func TestF33_PutIsDurable(t *testing.T) {
	if dir := os.Getenv("ROUX_TEST_PUT"); dir != "" { // the other process
		s, err := Open(Config{Dir: filepath.Join(dir, "files")})
		if err != nil {
			t.Fatal(err)
		}
		for _, content := range []string{"first", "second", "first"} {
			if _, err := s.Put(ctx, "a", strings.NewReader(content), content, ""); err != nil {
				t.Fatal(err)
			}
			fmt.Printf("put %s\n", hashOf(content))
		}
		return
	}
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("there is no strace to see the system calls with")
	}
	for _, begun := range []bool{false, true} {
		t.Run(fmt.Sprintf("directories are there %v", begun), func(t *testing.T) {
			dir := t.TempDir()
			if begun {
				p := placeOf("a", hashOf("first"))
				if err := os.MkdirAll(filepath.Join(dir, "files", p.shard), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			log := filepath.Join(t.TempDir(), "calls")
			cmd := exec.Command(strace, "-f", "-y", "-s", "200", "-o", log,
				"-e", "trace=openat,mkdirat,mkdir,renameat,renameat2,write,pwrite64,fsync,fdatasync", os.Args[0], "-test.run=^TestF33_PutIsDurable$")
			cmd.Env = append(os.Environ(), "ROUX_TEST_PUT="+dir)
			if out, err := cmd.CombinedOutput(); err != nil {
				if strings.Contains(string(out), "ptrace") {
					t.Skipf("strace may not trace here: %s", out)
				}
				t.Fatalf("%v\n%s", err, out)
			}
			if n := judgeCalls(t, log, dir); n != 3 {
				t.Errorf("%d files were put, want 3", n)
			}
		})
	}
}

var (
	unfinished = regexp.MustCompile(`^(\d+) +(.*) <unfinished \.\.\.>$`)
	resumed    = regexp.MustCompile(`^(\d+) +<\.\.\. \w+ resumed>(.*)$`)
	called     = regexp.MustCompile(`^\d+ +(\w+)\((.*)\) += (\d+)`)
	descriptor = regexp.MustCompile(`^\d+<([^>]*)>`)
	renamed    = regexp.MustCompile(`^\d+<([^>]*)>, "([^"]*)", \d+<([^>]*)>, "([^"]*)"`)
	made       = regexp.MustCompile(`^(?:\d+|AT_FDCWD)<([^>]*)>, "([^"]*)"`)
)

// A ledger records when each path was last changed and last synced, as line numbers of
// the log of system calls.
type ledger struct {
	now             int
	changed, synced map[string]int
	named           map[string]int // when the name came into its directory; 0 = before
}

// durable reports whether a file's name and its content would survive a power cut.
func (l *ledger) durable(path string) bool {
	return l.nameDurable(path) && l.synced[path] > l.changed[path]
}

func (l *ledger) nameDurable(path string) bool { return l.synced[filepath.Dir(path)] > l.named[path] }

// judgeCalls replays the calls and returns how many files were put. Whatever was
// there before counts as not synced.
func judgeCalls(t *testing.T, log, dir string) (puts int) {
	t.Helper()
	text, err := os.Open(log)
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	l := ledger{changed: map[string]int{}, synced: map[string]int{}, named: map[string]int{}}
	begun := map[string]string{}
	for lines := bufio.NewScanner(text); lines.Scan(); l.now++ {
		line := lines.Text()
		if m := unfinished.FindStringSubmatch(line); m != nil {
			begun[m[1]] = m[1] + " " + m[2]
			continue
		}
		if m := resumed.FindStringSubmatch(line); m != nil {
			line = begun[m[1]] + m[2]
		}
		m := called.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		switch name, args := m[1], m[2]; name {
		case "fsync", "fdatasync":
			l.synced[descriptor.FindStringSubmatch(args)[1]] = l.now
		case "mkdirat", "openat":
			if at := made.FindStringSubmatch(args); at != nil && (name == "mkdirat" || strings.Contains(args, "O_CREAT")) {
				path := filepath.Join(at[1], at[2])
				l.named[path], l.changed[path] = l.now, l.now
			}
		case "renameat", "renameat2":
			r := renamed.FindStringSubmatch(args)
			if r == nil {
				continue // with an absolute path: a file of the test binary, such as its coverage data
			}
			from, to := filepath.Join(r[1], r[2]), filepath.Join(r[3], r[4])
			l.changed[to], l.synced[to], l.named[to] = l.changed[from], l.synced[from], l.now
		case "write", "pwrite64":
			at := descriptor.FindStringSubmatch(args)
			if at == nil {
				continue
			}
			l.changed[at[1]] = l.now
			_, said, ok := strings.Cut(args, `"put sha256_`)
			if !ok {
				continue
			}
			puts++
			p := placeOf("a", "sha256_"+said[:64])
			for _, name := range []string{"files", filepath.Join("files", p.account), filepath.Join("files", p.shard)} {
				if !l.nameDurable(filepath.Join(dir, name)) {
					t.Errorf("file %.8s: the name %s was not synced", said, name)
				}
			}
			for _, name := range []string{p.file(), p.sidecar()} {
				if !l.durable(filepath.Join(dir, "files", name)) {
					t.Errorf("file %.8s: %s was not synced", said, name)
				}
			}
		}
	}
	return puts
}
