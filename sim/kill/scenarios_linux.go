// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Exit codes of commands.
const (
	exitInternal    = 70
	exitInterrupted = 130
)

var scenarios = []scenario{
	{"F32_SyncFailsOnce", false, func(s *scenarioRun) { syncFails(s, "fsync,fdatasync:error=EIO:when=4") }},
	{"F32_SyncFailsForEver", false, func(s *scenarioRun) { syncFails(s, "fsync,fdatasync:error=EIO:when=4+") }},
	{"F32_SlowDisk", false, slowDisk},
	{"F32_DiskHangs", true, diskHangs},
	{"F31_NoSpaceForTheLog", false, noSpace},
	{"F31_SmallFileSystem", false, smallDisk},
	{"F34_FewDescriptors", false, fewDescriptors},
	{"F34_NoDescriptorAtAll", false, noDescriptor},
	{"F34_AcceptFails", false, acceptFails},
	{"F34_ThreadsComeLate", false, threadsLate},
	{"F34_NoThread", false, noThread},
	{"F35_StoppedOwner", false, stoppedOwner},
	{"F07_StoppedBeyondItsTimeout", false, stoppedAttempt},
	{"F45_Drain", false, drain},
}

// syncFails: after a sync of the log has failed, nothing more is acknowledged. The
// process reports it and ends, and the next one finds everything intact (I21).
func syncFails(s *scenarioRun, inject string) {
	s.begin("mixed")
	p := s.runInjected(inject, s.wal(), "resume")
	s.wantExit(p, exitInternal, "STORE_FAILED")
	if s.injected("INJECTED") == 0 {
		s.Fatalf("no sync was made to fail")
	}
	// The kernel may have dropped what it could not write, so a second sync that
	// succeeds would prove nothing.
	_, after, _ := strings.Cut(s.traced(), "INJECTED")
	if strings.Contains(after, "sync(") || strings.Contains(after, "sync resumed") {
		s.Errorf("the log was synced again after a sync had failed (I21):\n%s", after)
	}
	s.finishIntact()
}

// slowDisk: each sync takes a tenth of a second. Everything completes, and many steps
// share a commit.
func slowDisk(s *scenarioRun) {
	s.begin("wide")
	p := s.runInjected("fsync,fdatasync:delay_enter=100000", s.wal(), "resume")
	events := 0
	for range p.lines {
		events++
	}
	s.wantExit(p, 0)
	syncs := s.injected("DELAYED")
	s.Logf("%d events in %d syncs of 100 ms", events, syncs)
	if syncs == 0 || events < 2*syncs {
		s.Errorf("%d events took %d syncs: commits are not shared on a slow disk", events, syncs)
	}
	s.finishIntact()
}

// diskHangs: one sync takes long. After ten seconds the process reports that its disk
// hangs, before the disk is back. (Its end is visible only later, because neither the
// kernel nor strace releases a thread that is inside the call.)
func diskHangs(s *scenarioRun) {
	const hangs = 25 * time.Second
	s.begin("mixed")
	p := s.runInjected(fmt.Sprintf("fsync,fdatasync:delay_enter=%d:when=4", hangs.Microseconds()), s.wal(), "resume")
	s.wantExit(p, exitInternal, "STORE_FAILED", "has not finished a write for 10s")
	if p.last < 10*time.Second || p.last > hangs {
		s.Errorf("its last line came after %s, want one between 10 s and %s", p.last, hangs)
	}
	s.finishIntact()
}

// noSpace: the disk is full when the log is written.
func noSpace(s *scenarioRun) {
	s.begin("mixed")
	p := s.runInjected("pwrite64:error=ENOSPC:when=6+", s.wal(), "resume")
	s.wantExit(p, exitInternal, "STORE_FULL")
	if s.injected("INJECTED") == 0 {
		s.Fatalf("no write was made to fail")
	}
	s.finishIntact()
}

// smallDisk fills a real file system in the middle of a run, checks what can still be
// read, frees some space, and continues.
func smallDisk(s *scenarioRun) {
	// The log alone may take 64 MiB; when its pages are freed there is room for the
	// database.
	if err := syscall.Mount("roux-kill", s.c.dir, "tmpfs", 0, "size=160m,mode=0700"); err != nil {
		s.Skipf("mounting a small file system needs root: %v", err)
	}
	defer func() {
		if err := syscall.Unmount(s.c.dir, syscall.MNT_DETACH); err != nil {
			s.Errorf("unmount: %v", err)
		}
	}()
	ballast := filepath.Join(s.c.dir, "ballast")
	fill := func() {
		f, err := os.Create(ballast)
		if err != nil {
			s.Fatalf("%v", err)
		}
		defer func() { _ = f.Close() }()
		for piece := make([]byte, 64<<10); len(piece) > 0; {
			if _, err = f.Write(piece); err != nil {
				piece = piece[:len(piece)/2]
			}
		}
		if !errors.Is(err, syscall.ENOSPC) {
			s.Fatalf("filling the disk: %v", err)
		}
	}
	fill() // before the first start
	p, err := s.run("mixed")
	if err != nil {
		s.Fatalf("%v", err)
	}
	s.wantExit(p, exitInternal, "STORE_FULL")
	free := func() {
		if err := os.Remove(ballast); err != nil {
			s.Fatalf("%v", err)
		}
	}
	free()
	s.begin("chain")
	s.tolerate = []string{"STORE_FULL"} // a step whose file has no room fails, as its policy says
	for range 2 {                       // full in the middle, twice
		fill()
		// The log has reserved space, which is used up first.
		code := 0
		for n := 0; code != exitInternal; n++ {
			if n == 12 {
				s.Fatalf("the disk was never full")
			}
			if p, err = s.run("bulky"); err != nil {
				s.Fatalf("%v", err)
			}
			if code = s.within(p, maxCommandTime); code > exitFailed && code != exitInternal || code < 0 {
				s.Fatalf("exit code %d\n%s", code, p.stderr())
			}
		}
		if !strings.Contains(p.stderr(), "STORE_FULL") {
			s.Errorf("STORE_FULL is not in its output:\n%s", p.stderr())
		}
		if _, err := s.list(); err != nil {
			s.Errorf("what is there cannot be read while the disk is full: %v", err)
		}
		free()
	}
	s.finishIntact()
}

// runWithFileLimit starts a command that may have that many files open.
func (s *scenarioRun) runWithFileLimit(files int, args ...string) *process {
	s.Helper()
	cmd := s.c.command(append(args, "-o", "jsonl")...)
	cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$@"`, files), "sh"}, cmd.Args...)
	p, err := s.c.startCommand(cmd)
	if err != nil {
		s.Fatalf("%v", err)
	}
	return p
}

// checkIdle asserts that a process was idle most of the time since began.
func (s *scenarioRun) checkIdle(p *process, began time.Time) {
	s.Helper()
	used := p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
	if took := time.Since(began); used > took/2+500*time.Millisecond {
		s.Errorf("%s of CPU in %s: something spins", used, took)
	}
}

// fewDescriptors: a hundred connections are needed where 64 files may be open. The
// ones that fail are retried; everything completes, and no goroutine spins.
func fewDescriptors(s *scenarioRun) {
	s.begin("crowd")
	began := time.Now()
	p := s.runWithFileLimit(64, "resume")
	s.wantExit(p, 0)
	s.checkIdle(p, began)
	s.finishIntact()
}

// noDescriptor: the store cannot be opened, or only in part. The command reports what
// it could not open and ends; the next one finds everything intact.
func noDescriptor(s *scenarioRun) {
	s.begin("mixed")
	s.tolerate = []string{"SERVICE_UNAVAILABLE", "STORE_FAILED"} // a step without a descriptor fails, as its policy says
	for files := 9; files < 20; files += 2 {                     // with fewer, Go's runtime does not start
		p := s.runWithFileLimit(files, "resume")
		code := s.within(p, maxCommandTime)
		if code == 0 {
			break // enough
		}
		if code == -1 || code == 2 || strings.Contains(p.stderr(), "panic:") || strings.Contains(p.stderr(), "goroutine ") {
			s.Errorf("with %d descriptors it ended with exit code %d:\n%s", files, code, p.stderr())
		}
	}
	s.finishIntact()
}

// acceptFails: the socket for other commands cannot accept connections for a while.
// The run continues, no goroutine spins, and later commands are answered again.
func acceptFails(s *scenarioRun) {
	s.begin("gate")
	began := time.Now()
	p := s.runInjected("accept4:error=EMFILE:when=1..6", "", "resume")
	stop := s.sendRequests()
	code := s.within(p, maxCommandTime)
	if err := stop(); err != nil {
		s.Fatalf("%v", err)
	}
	if code != 0 {
		s.Errorf("exit code %d\n%s", code, p.stderr())
	}
	s.checkIdle(p, began)
	if strings.Contains(p.stderr(), "accept4") {
		s.Errorf("it is printed among the lines of the run:\n%s", p.stderr())
	}
	if s.injected("INJECTED") == 0 {
		s.Errorf("no accept was made to fail")
	}
	s.finishIntact()
}

// threadsLate: the kernel creates no thread for a while. Go's runtime retries, with
// pauses, and everything completes.
func threadsLate(s *scenarioRun) {
	s.begin("crowd")
	began := time.Now()
	p := s.runInjected("clone,clone3:error=EAGAIN:when=2..5", "", "resume")
	s.wantExit(p, 0)
	s.checkIdle(p, began)
	if s.injected("INJECTED") == 0 {
		s.Errorf("no thread was refused")
	}
	s.finishIntact()
}

// noThread: the kernel creates no more threads at all. Go's runtime reports it and
// ends the process, which cannot be prevented; it is a crash like any other.
func noThread(s *scenarioRun) {
	s.begin("crowd")
	ended := 0
	for from := 2; from < 12; from += 3 { // strace counts the calls of each thread
		p := s.runInjected(fmt.Sprintf("clone,clone3:error=EAGAIN:when=%d+", from), "", "resume")
		code := s.within(p, maxCommandTime)
		if code == 0 {
			break // enough
		}
		ended++
		if !strings.Contains(p.stderr(), "failed to create new OS thread") {
			s.Errorf("no thread from the call %d on, and it ended with exit code %d:\n%s", from, code, p.stderr())
		}
	}
	if ended == 0 {
		s.Errorf("no process needed more threads than it got")
	}
	s.finishIntact()
}

// stoppedOwner: the process that holds the directory is stopped. A second one is
// refused, however long that lasts. When the first continues, it still owns the
// directory.
func stoppedOwner(s *scenarioRun) {
	p, err := s.run("gate")
	if err != nil {
		s.Fatalf("%v", err)
	}
	for l := range p.lines {
		if l.Type == "node.waiting" {
			break
		}
	}
	p.signal(syscall.SIGSTOP)
	second, err := s.c.start(nil, "resume")
	if err != nil {
		s.Fatalf("%v", err)
	}
	s.wantExit(second, exitLocked, "STORE_LOCKED", fmt.Sprint(p.cmd.Process.Pid))
	p.signal(syscall.SIGCONT)
	stop := s.sendRequests()
	s.wantExit(p, 0)
	if err := stop(); err != nil {
		s.Fatalf("%v", err)
	}
	s.finishIntact()
}

// stoppedAttempt: the process is stopped beyond the timeout of its attempt. When it
// continues, the answer and the timeout are there at the same moment. One of the two
// counts.
func stoppedAttempt(s *scenarioRun) {
	p, err := s.run("late")
	if err != nil {
		s.Fatalf("%v", err)
	}
	for l := range p.lines {
		if l.Type == "node.started" {
			break
		}
	}
	p.signal(syscall.SIGSTOP)
	time.Sleep(1500 * time.Millisecond) // beyond the step's timeout
	p.signal(syscall.SIGCONT)
	s.wantExit(p, 0)
	s.finishIntact()
}

// drain: the process is asked to stop in the middle of many steps. It lets running
// attempts end and counts none as lost.
func drain(s *scenarioRun) {
	p, err := s.run("bulky") // it is not over before this process has read five lines
	if err != nil {
		s.Fatalf("%v", err)
	}
	n := 0
	for l := range p.lines {
		if l.Type == "node.completed" {
			if n++; n == 5 {
				p.signal(syscall.SIGTERM)
			}
		}
	}
	s.wantExit(p, exitInterrupted, "has not ended")
	s.finishIntact()
	if n := s.lostAttempts; n != 0 {
		s.Errorf("%d attempts were lost to an orderly stop", n)
	}
}
