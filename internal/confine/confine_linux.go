// SPDX-License-Identifier: Apache-2.0

package confine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/roux-engine/roux/fault"
)

// childEnv is the environment variable that makes this program the first process of a box, or
// the process that becomes the program.
const childEnv = "ROUX_COMMAND_CHILD"

// The values of childEnv.
const (
	roleFirst   = "first"
	roleProgram = "program"
)

// canStartItself is set when main has called Dispatch.
var canStartItself atomic.Bool

// Dispatch does the work of a child and exits when this process was started as one; otherwise it
// returns. Call it first in main (and in TestMain): without it nothing can be confined.
func Dispatch() {
	switch os.Getenv(childEnv) {
	case "":
		canStartItself.Store(true)
	case roleFirst:
		os.Exit(first())
	default:
		os.Exit(become())
	}
}

// The users that programs run as when this process is root's: those that service managers use
// for programs without a user of their own. Each program that runs has another one, because
// the kernel counts the processes of a user.
const (
	firstUID = 61184
	manyUIDs = 65519 - firstUID + 1
	insideID = 1000 // what the user of this process is called inside, when it is not root
)

var lastUID atomic.Uint32

// ownUIDs is where those of this process begin: other processes of Roux have the same ones.
var ownUIDs = rand.Uint32()

// Prepare makes the directories of a box. Input files are put into its working directory after
// that, and given to the program with [Own].
func Prepare(b *Box) error {
	names := []string{work}
	if !b.None {
		names = append(names, scratch, root)
		if os.Geteuid() == 0 {
			b.UID = firstUID + int((ownUIDs+lastUID.Add(1))%manyUIDs)
		}
	}
	for _, name := range names {
		if err := os.Mkdir(filepath.Join(b.Dir, name), 0o700); err != nil {
			return err
		}
		if name != root {
			if err := Own(b, filepath.Join(b.Dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Own gives a file or a directory in the working directory to the program.
func Own(b *Box, path string) error {
	if b.UID == 0 {
		return nil
	}
	return os.Lchown(path, b.UID, b.UID)
}

// attributes returns how the first process is started.
func attributes(b *Box) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{
		Setpgid:    true,
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
	}
	if !b.Network {
		a.Cloneflags |= unix.CLONE_NEWNET
	}
	if os.Geteuid() == 0 {
		return a
	}
	a.Cloneflags |= unix.CLONE_NEWUSER
	a.UidMappings = []syscall.SysProcIDMap{{ContainerID: insideID, HostID: os.Geteuid(), Size: 1}}
	a.GidMappings = []syscall.SysProcIDMap{{ContainerID: insideID, HostID: os.Getegid(), Size: 1}}
	a.Credential = &syscall.Credential{Uid: insideID, Gid: insideID, NoSetGroups: true}
	// The first process mounts, reads what the others use, and gives up both for the program.
	a.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SYS_PTRACE, unix.CAP_SETPCAP, unix.CAP_DAC_READ_SEARCH}
	return a
}

// remedy is what an operator can do when the kernel does not confine.
const remedy = "allow user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0; in a container, a seccomp profile that permits clone with namespaces and mount; under systemd, the drop-in of docs/commands.md), " +
	"or say `confine: none` of a command that you trust with everything that this user may do"

// unavailable returns the error for a kernel that does not confine.
func unavailable(why error) error {
	return fault.Wrap(fault.ConfineUnavailable, why, "this system does not let Roux confine commands: %v; %s", why, remedy)
}

// Check reports why commands cannot be confined here: nil means that they can. It starts a
// process that does all but run a program.
func Check(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "roux-check-")
	if err != nil {
		return unavailable(err)
	}
	defer os.RemoveAll(dir)
	b := &Box{Probe: true, Program: "/", Dir: dir, Memory: 256 << 20, Disk: 1 << 20, Processes: 16}
	if err := Prepare(b); err != nil {
		return unavailable(err)
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var stderr bytes.Buffer
	res, err := Run(ctx, b, Streams{Stdout: &stderr, Stderr: &stderr})
	switch {
	case err != nil && errors.Is(err, fault.ConfineUnavailable):
		return err
	case err != nil:
		return unavailable(err)
	case res.Failed != "":
		return unavailable(errors.New(res.Failed))
	case res.Exit != 0 || res.Signal != "" || res.Limit != "":
		return unavailable(fmt.Errorf("a trial ended with %+v: %s", res, stderr.String()))
	}
	return nil
}

// run runs a program in namespaces of its own.
func run(ctx context.Context, b *Box, s Streams) (Result, error) {
	if !canStartItself.Load() {
		return Result{}, unavailable(errors.New("this program cannot start itself: it did not call Dispatch"))
	}
	exe, err := Executable()
	if err != nil {
		return Result{}, unavailable(err)
	}
	spec, err := json.Marshal(b)
	if err != nil {
		return Result{}, err
	}
	specRead, specWrite, err := os.Pipe()
	if err != nil {
		return Result{}, err
	}
	defer specWrite.Close() // the first process ends when this is closed, by whatever
	statusRead, statusWrite, err := os.Pipe()
	if err != nil {
		specRead.Close()
		return Result{}, err
	}
	defer statusRead.Close()
	cmd := exec.CommandContext(ctx, exe)
	cmd.Args = []string{"roux-command"}
	cmd.Env = append([]string{childEnv + "=" + roleFirst, "GOMAXPROCS=2", "GOTRACEBACK=single"}, coverage()...)
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = s.Stdout, s.Stderr
	if s.Stdin != nil {
		cmd.Stdin = s.Stdin
	}
	cmd.ExtraFiles = []*os.File{specRead, statusWrite}
	cmd.WaitDelay = 5 * time.Second
	cmd.SysProcAttr = attributes(b)
	err = cmd.Start()
	specRead.Close()
	statusWrite.Close()
	if err != nil {
		if ctx.Err() != nil {
			return Result{}, context.Cause(ctx)
		}
		return Result{}, unavailable(err)
	}
	go func() { _, _ = specWrite.Write(append(spec, '\n')) }() // fails when the child has ended
	var res Result
	told := json.NewDecoder(statusRead).Decode(&res)
	err = cmd.Wait()
	switch {
	case ctx.Err() != nil:
		return Result{}, context.Cause(ctx)
	case told != nil:
		return Result{}, fault.Wrap(fault.InternalError, fmt.Errorf("%w: %w", told, err), "the process that confines a command ended without a result")
	case err != nil:
		return Result{}, fault.Wrap(fault.InternalError, err, "the output of a command was not read to its end: %v", err)
	}
	return res, nil
}

// coverage returns the variable of the environment with which covered tests write what they
// cover.
func coverage() []string {
	if dir, ok := os.LookupEnv("GOCOVERDIR"); ok {
		return []string{"GOCOVERDIR=" + dir}
	}
	return nil
}

// first is the first process of a box: it puts the file system together, starts the program,
// watches what it uses, and ends when the program or the parent does. The kernel then ends
// every other process in the box.
func first() int {
	runtime.LockOSThread() // namespaces and capabilities are those of a thread
	syscall.Umask(0o022)   // the program's user enters the directories of the root that this one makes
	// Where the program has the same user, it can send signals to this process. The kernel drops
	// those that a first process does not handle; the runtime handles some, and would exit. They
	// are not ignored, because the program would inherit that.
	signal.Notify(make(chan os.Signal, 1))
	status := os.NewFile(4, "status")
	syscall.CloseOnExec(3)
	syscall.CloseOnExec(4)
	in := json.NewDecoder(os.NewFile(3, "spec"))
	var b Box
	if err := in.Decode(&b); err != nil {
		return 1 // the parent has ended
	}
	go func() {
		var more any
		_ = in.Decode(&more) // nothing follows: it returns when the parent has ended
		os.Exit(1)
	}()
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return tell(status, Result{Failed: err.Error()})
	}
	if err := buildRoot(&b); err != nil {
		return tell(status, Result{Failed: err.Error()})
	}
	pid, failed := startProgram(&b)
	if failed != "" {
		return tell(status, Result{Failed: failed})
	}
	var limit atomic.Value
	go watch(&b, func(name string) {
		limit.CompareAndSwap(nil, name)
		_ = syscall.Kill(-1, syscall.SIGKILL) // all but this process
	})
	for {
		var ws syscall.WaitStatus
		got, err := syscall.Wait4(-1, &ws, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return tell(status, Result{Failed: "wait for the program: " + err.Error()})
		}
		if got != pid || !ws.Exited() && !ws.Signaled() {
			continue // an orphan, or a stop
		}
		res := Result{Exit: ws.ExitStatus()}
		if ws.Signaled() {
			res = Result{Signal: unix.SignalName(ws.Signal())}
		}
		if name, ok := limit.Load().(string); ok {
			res.Limit = name
		}
		return tell(status, res)
	}
}

func tell(status *os.File, res Result) int {
	if json.NewEncoder(status).Encode(res) != nil {
		return 1
	}
	return 0
}

// startProgram starts the process that becomes the program.
func startProgram(b *Box) (pid int, failed string) {
	spec, err := json.Marshal(b)
	if err != nil {
		return 0, err.Error()
	}
	specRead, specWrite, err := os.Pipe()
	if err != nil {
		return 0, err.Error()
	}
	failRead, failWrite, err := os.Pipe()
	if err != nil {
		return 0, err.Error()
	}
	p, err := os.StartProcess("/proc/self/exe", []string{"roux-command"}, &os.ProcAttr{
		Env:   append([]string{childEnv + "=" + roleProgram, "GOMAXPROCS=2", "GOTRACEBACK=single"}, coverage()...),
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr, specRead, failWrite},
	})
	specRead.Close()
	failWrite.Close()
	if err != nil {
		return 0, err.Error()
	}
	// A reader that the kernel ends in the middle closes its end; the write fails then.
	go func() { _, _ = specWrite.Write(spec); specWrite.Close() }()
	var text bytes.Buffer
	_, _ = text.ReadFrom(failRead) // nothing, when the program has started
	return p.Pid, text.String()
}

// become drops what the program must not have, and becomes it.
func become() int {
	runtime.LockOSThread()
	syscall.CloseOnExec(3)
	syscall.CloseOnExec(4)
	failed := os.NewFile(4, "failed")
	var b Box
	err := json.NewDecoder(os.NewFile(3, "spec")).Decode(&b)
	if err == nil {
		err = b.exec()
	}
	if err != nil {
		fmt.Fprint(failed, err)
		return 1
	}
	return 0
}

func (b *Box) exec() error {
	if err := ownPipes(b.UID); err != nil {
		return fmt.Errorf("give the standard streams to the program: %w", err)
	}
	if err := dropPrivileges(b.UID); err != nil {
		return fmt.Errorf("drop privileges: %w", err)
	}
	if err := os.Chdir("/" + workInside); err != nil {
		return err
	}
	if err := filterCalls(); err != nil {
		return fmt.Errorf("filter system calls: %w", err)
	}
	env := b.withDefaults("/"+workInside, "/tmp")
	// Under the limits this process itself may not get the memory that it asks for, so nothing
	// stands between them and the program. This waits for a collection that has begun, and no
	// other one begins.
	debug.SetGCPercent(-1)
	if err := limitProcess(b); err != nil {
		return fmt.Errorf("set limits: %w", err)
	}
	if b.Probe {
		return probe()
	}
	if err := syscall.Exec(b.Program, b.Args, env); err != nil {
		return fmt.Errorf("%s: %w", b.Program, err)
	}
	return nil
}

// ownPipes gives the pipes of the standard streams to the user uid, which can then open them by
// their names, such as /dev/stdout.
func ownPipes(uid int) error {
	if uid == 0 {
		return nil
	}
	for fd := range 3 {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return err
		}
		if st.Mode&unix.S_IFMT != unix.S_IFIFO {
			continue // a file or a device, which is others', too
		}
		if err := unix.Fchown(fd, uid, uid); err != nil {
			return err
		}
	}
	return nil
}

// probe opens what programs need to open.
func probe() error {
	for _, name := range []string{"/dev/null", "/dev/stdout"} {
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}
