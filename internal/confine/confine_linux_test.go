// SPDX-License-Identifier: Apache-2.0

package confine

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	Dispatch()
	if dir := os.Getenv("ROUX_TEST_PARENT"); dir != "" {
		os.Exit(parent(dir))
	}
	os.Exit(m.Run())
}

// mustConfine skips the test where the kernel does not confine.
func mustConfine(t *testing.T) {
	t.Helper()
	err := Check(t.Context())
	if err != nil && strings.Contains(err.Error(), "open /dev/") {
		t.Fatal("the box is there, but not as it should be:", err)
	}
	if err != nil {
		t.Skip("this kernel does not confine:", err)
	}
}

// newBox returns a box that runs a script.
func newBox(t *testing.T, script string) *Box {
	t.Helper()
	dir, err := os.MkdirTemp("", "box")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	b := &Box{Program: "/bin/sh", Args: []string{"sh", "-c", script}, Dir: dir, Memory: 256 << 20, Disk: 8 << 20, Processes: 64}
	if err := Prepare(b); err != nil {
		t.Fatal(err)
	}
	return b
}

func runBox(t *testing.T, b *Box) (Result, string) {
	t.Helper()
	var out bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	res, err := Run(ctx, b, Streams{Stdout: &out, Stderr: &out})
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if res.Failed != "" {
		t.Fatalf("%s\n%s", res.Failed, out.String())
	}
	return res, out.String()
}

// A program sees its own files and processes only, has a clean environment, no privileges and
// no network.
func TestI19_WhatAProgramReaches(t *testing.T) {
	mustConfine(t)
	t.Setenv("CANARY", "visible")
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("canary"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, script, want string }{
		{"the environment is clean", `env | cut -d= -f1 | sort | tr '\n' ' '`, "HOME PATH PWD TMPDIR "},
		{"no file of the machine", `cat ` + secret + ` 2>/dev/null || echo none`, "none\n"},
		{"no secrets of the machine", `ls /etc/shadow /root /home /var /sys /run 2>/dev/null || echo none`, "none\n"},
		{"the system is read only", `touch /usr/x 2>/dev/null || touch /x 2>/dev/null || touch /etc/x 2>/dev/null || touch /dev/x 2>/dev/null || echo none`, "none\n"},
		{"no other process", `test $(ls /proc | grep -c '^[0-9]*$') -lt 6 && echo few`, "few\n"},
		{"no privileges", `grep -E '^(CapEff|CapBnd|CapPrm|CapAmb|NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\t\n '`,
			"CapPrm:0000000000000000CapEff:0000000000000000CapBnd:0000000000000000CapAmb:0000000000000000NoNewPrivs:1Seccomp:2"},
		{"not root", `test "$(id -u)" != 0 && echo user`, "user\n"},
		{"no network", `tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '; tail -n +2 /proc/net/route`, "lo\n"},
		{"no namespaces", `unshare -U true 2>/dev/null || echo none`, "none\n"},
		{"no mounts", `mount -t tmpfs x /tmp 2>/dev/null || echo none`, "none\n"},
		{"the first process cannot be killed", `kill -9 1 2>/dev/null; echo alive`, "alive\n"},
		{"nor ended", `trap "" TERM INT HUP; kill -TERM 0; for s in TERM INT HUP QUIT ABRT SEGV USR1 PROF; do kill -$s 1 2>/dev/null; done; cat /proc/1/stat >/dev/null && echo alive`, "alive\n"},
		{"the program gets signals", `trap "echo term" TERM; kill -TERM $$; sh -c 'kill -HUP $$' 2>/dev/null; echo $?`, "term\n129\n"},
		{"nor read", `cat /proc/1/environ 2>/dev/null || echo none`, "none\n"},
		{"no input", `cat`, ""},
		{"a place to work", `pwd; echo x >a && echo y >/tmp/b && cat a /tmp/b; echo z >/dev/null`, "/work\nx\ny\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			res, out := runBox(t, newBox(t, tt.script))
			if out != tt.want {
				t.Errorf("got %q (%+v), want %q", out, res, tt.want)
			}
		})
	}
}

// The standard streams have names, whatever the mask of new files is for the server.
func TestStreams(t *testing.T) {
	mask := syscall.Umask(0o077)
	defer syscall.Umask(mask)
	mustConfine(t)
	b := newBox(t, `echo a >/dev/stdout && echo b >/dev/stderr && umask`)
	if res, out := runBox(t, b); out != "a\nb\n0022\n" {
		t.Errorf("%q, %+v", out, res)
	}
}

// A broken is a writer that fails.
type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("the disk is full") }

// A program whose output could not be kept has no result.
func TestOutputIsKept(t *testing.T) {
	mustConfine(t)
	for _, none := range []bool{false, true} {
		b := newBox(t, "echo x")
		b.None = none
		if res, err := Run(t.Context(), b, Streams{Stdout: broken{}}); err == nil || !strings.Contains(err.Error(), "the disk is full") {
			t.Errorf("none=%v: %+v, %v", none, res, err)
		}
	}
}

func TestResults(t *testing.T) {
	mustConfine(t)
	for _, none := range []bool{false, true} {
		for _, tt := range []struct {
			script string
			want   Result
		}{
			{"exit 0", Result{}},
			{"exit 7", Result{Exit: 7}},
			{"kill -TERM $$", Result{Signal: "SIGTERM"}},
			{"(sleep 1000 &) ; exit 3", Result{Exit: 3}}, // and is not waited for
		} {
			b := newBox(t, tt.script)
			b.None = none
			if res, out := runBox(t, b); res != tt.want {
				t.Errorf("none=%v %s: %+v %s, want %+v", none, tt.script, res, out, tt.want)
			}
		}
		b := newBox(t, "")
		b.None, b.Program = none, filepath.Join(t.TempDir(), "missing")
		if res, err := Run(t.Context(), b, Streams{}); err != nil || !strings.Contains(res.Failed, "no such file") {
			t.Errorf("none=%v: a missing program: %+v, %v", none, res, err)
		}
	}
}

// A program that uses more than it may is ended, whether a process, or all of them together, do.
func TestI15_LimitsOfAProgram(t *testing.T) {
	mustConfine(t)
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("there is no python3")
	}
	for _, tt := range []struct {
		name, script string
		limit        string
		out          string
	}{
		{"memory of one process", `python3 -c 'b = bytearray(1<<30)' 2>&1 | tail -n 1`, "", "MemoryError\n"},
		{"memory of many", `for i in 1 2 3 4; do python3 -c 'import time; b = bytearray(b"x"*(100<<20)); time.sleep(1000)' & done; wait`, LimitMemory, ""},
		{"a large file", `trap "" XFSZ; head -c 100000000 /dev/zero 2>/dev/null >a || echo refused; test $(stat -c %s a) -le 8388608 && echo small`, "", "refused\nsmall\n"},
		{"many files", `for i in 1 2 3 4 5 6; do head -c 4000000 /dev/zero >$i; done; sleep 1000`, LimitDisk, ""},
		{"files without a name", `for i in 1 2 3 4 5 6; do (exec 3>$i; rm $i; head -c 4000000 /dev/zero >&3; sleep 1000) & done; wait`, LimitDisk, ""},
		{"files of /tmp", `for i in 1 2 3 4 5 6; do head -c 4000000 /dev/zero >/tmp/$i; done; sleep 1000`, LimitDisk, ""},
		{"files that are too deep to be counted", `n=` + strings.Repeat("d", 200) + `; for i in $(seq 30); do mkdir $n && cd -P ./$n || exit; done; head -c 1000 /dev/zero >file; sleep 1000`, LimitEntries, ""},
		{"processes", `n=0; while [ $n -lt 300 ]; do sleep 1000 & n=$((n+1)); done 2>/dev/null; echo bounded`, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			res, out := runBox(t, newBox(t, tt.script))
			if tt.name == "a large file" && res.Limit == LimitDisk {
				return // with its directory it is too much, if that is seen in time
			}
			if res.Limit != tt.limit || tt.out != "" && out != tt.out {
				t.Errorf("got %+v and %q, want limit %q and %q", res, out, tt.limit, tt.out)
			}
			if tt.name == "processes" && res.Exit == 0 {
				t.Error("300 processes were started")
			}
		})
	}
}

// Too many files are not counted to the end.
func TestDiskUse(t *testing.T) {
	dir := t.TempDir()
	for i := range 5 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for most, want := range map[int]bool{5: false, 6: true} { // with the directory itself
		if sum, ok := diskUse(dir, most); ok != want || sum == 0 {
			t.Errorf("at most %d: %d, %v", most, sum, ok)
		}
	}
	if sum, ok := diskUse(filepath.Join(dir, "removed"), 1); sum != 0 || !ok {
		t.Errorf("what was removed: %d, %v", sum, ok)
	}
}

// Memory that processes share counts once when it matters.
func TestMemoryUse(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("there is no python3")
	}
	const size = 64 << 20
	cmd := exec.CommandContext(t.Context(), "python3", "-c", `import os, sys
b = bytearray(b"x" * int(sys.argv[1]))
pids = [os.getpid()]
for i in range(3):
    pid = os.fork()
    if pid == 0:
        sys.stdin.read()
        os._exit(0)
    pids.append(pid)
print(*pids, flush=True)
sys.stdin.read()`, fmt.Sprint(size))
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	var dirs []string
	for _, pid := range strings.Fields(line) {
		dirs = append(dirs, "/proc/"+pid)
	}
	shared, once := memoryUse(dirs, 1<<40), memoryUse(dirs, size)
	if err = errors.Join(err, stdin.Close(), cmd.Wait()); err != nil {
		t.Fatal(err)
	}
	if shared < 4*size || once < size || once > 2*size {
		t.Errorf("processes that share %d use %d, and %d if it counts once", size, shared, once)
	}
}

// Everything holds for a user without privileges, too.
func TestAsOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user; this is one without privileges already")
	}
	dir, err := os.MkdirTemp("", "user")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	program, err := os.ReadFile(os.Args[0])
	if err == nil {
		err = errors.Join(os.Chmod(dir, 0o777), os.WriteFile(filepath.Join(dir, "it.test"), program, 0o755), os.Chmod(filepath.Join(dir, "it.test"), 0o755)) //nolint:gosec // others run it
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "it.test"), "-test.v", "-test.skip=UnitAndDropIn") // which reads files of the source
	cmd.Dir = dir
	cmd.Env = []string{"TMPDIR=" + dir, "HOME=" + dir, "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if bytes.Contains(out, []byte("does not confine")) {
		t.Skipf("this kernel does not confine: another user may not make namespaces\n%s", out)
	}
}

// alive reports whether a process has the word in its command line.
func alive(word string) bool {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range lines {
		if text, err := os.ReadFile(name); err == nil && bytes.Contains(text, []byte(word)) {
			return true
		}
	}
	return false
}

// await returns when the condition holds, and fails the test when it does not soon.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

// deep starts a process in a session of its own, which ignores signals and outlives its parent.
func deep(word string) string {
	return `trap "" TERM HUP INT; (setsid sh -c 'trap "" TERM HUP INT; sleep ` + word + `' >/dev/null 2>&1 &); sleep ` + word
}

// Whatever a program has started ends when the run is cancelled.
func TestCancelEndsAll(t *testing.T) {
	mustConfine(t)
	word := fmt.Sprintf("7%d.5", os.Getpid())
	b := newBox(t, deep(word))
	why := errors.New("cancelled")
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error)
	go func() {
		_, err := Run(ctx, b, Streams{})
		done <- err
	}()
	await(t, "the program did not start", func() bool { return alive("sleep\x00" + word) })
	cancel(why)
	if err := <-done; !errors.Is(err, why) {
		t.Errorf("the error is %v, want the cause", err)
	}
	if alive("sleep\x00" + word) {
		t.Error("a process has outlived the cancellation")
	}
}

// parent runs a program for TestKilledParent until it is killed.
func parent(dir string) int {
	b := &Box{Program: "/bin/sh", Args: []string{"sh", "-c", deep(os.Getenv("ROUX_TEST_WORD"))}, Dir: dir, Memory: 256 << 20, Disk: 1 << 20, Processes: 64}
	if err := Prepare(b); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	res, err := Run(context.Background(), b, Streams{Stderr: os.Stderr})
	fmt.Fprintln(os.Stderr, res, err)
	return 1
}

// Whatever a program has started ends with this process, also if that is killed.
func TestKilledParent(t *testing.T) {
	mustConfine(t)
	word := fmt.Sprintf("8%d.5", os.Getpid())
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "ROUX_TEST_PARENT="+t.TempDir(), "ROUX_TEST_WORD="+word)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "the program did not start", func() bool { return alive("sleep\x00" + word) })
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	await(t, "a process has outlived its parent", func() bool { return !alive("sleep\x00" + word) })
}
