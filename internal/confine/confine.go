// SPDX-License-Identifier: Apache-2.0

// Package confine runs a program that recipes give arguments to, inside bounds.
//
// On Linux a confined program runs in namespaces of its own. It sees the system's programs and
// libraries, read only, its working directory and nothing else of the disk; no process but its
// own; and no network unless that is allowed. It has no privileges and cannot get any, and a
// filter refuses system calls that programs do not need. This program is started again as the
// first process of those namespaces (see [Dispatch]). The kernel ends all others with it, and it
// ends when its parent does, however that ends.
//
// The package decides what a program can reach, what it may use and when it is ended, and never
// what it is for: it knows no recipes and no accounts.
package confine

import (
	"context"
	"io"
	"os"
)

// A Box says which program runs, and within which bounds.
type Box struct {
	Program string   // absolute path
	Args    []string // with the name of the program as the first
	Env     []string // the whole environment, without HOME, TMPDIR and PATH where they are missing
	// Dir is a directory of this run alone, which exists and is empty but for what [Prepare] has
	// made in it.
	Dir string
	// Read lists further files and directories that it may read.
	Read    []string
	Network bool // it may use the network of this machine
	// None runs the program without confinement, as the user of this process. It is still ended
	// with the context, and what it leaves behind in its process group is killed; the limits below
	// do not count.
	None bool
	// Memory bounds what each process of the program may allocate, and what all of them use
	// together, in bytes. Disk bounds what its files have together, in bytes.
	Memory, Disk int64
	// Processes bounds the processes and threads.
	Processes int

	// Probe runs no program: everything else is done.
	Probe bool
	// UID is the user that it runs as, when this process is root's.
	UID int
}

// Streams are the standard streams of a program. No Stdin is an empty one.
type Streams struct {
	Stdin          *os.File
	Stdout, Stderr io.Writer
}

// The limits that a program may exceed, see Result.
const (
	LimitMemory  = "memory"
	LimitDisk    = "disk"
	LimitEntries = "entries" // more than MaxEntries, or some that are too deep to be counted
)

// A Result says how a program ended.
type Result struct {
	Exit   int    `json:"exit"`             // its exit code, if no signal ended it
	Signal string `json:"signal,omitempty"` // the name of the signal that ended it
	Limit  string `json:"limit,omitempty"`  // the limit for which it was ended
	Failed string `json:"failed,omitempty"` // why it could not be started
}

// The directories that [Prepare] makes in Box.Dir.
const (
	work    = "files" // the working directory
	scratch = "tmp"   // /tmp
	root    = "root"  // where the root of the file system is put together
)

// MaxEntries bounds the files and directories that a program has in its working directory, and
// those that it has in /tmp.
const MaxEntries = 100_000

// WorkDir returns the working directory in Box.Dir.
func (b *Box) WorkDir() string { return b.Dir + string(os.PathSeparator) + work }

// Run runs a program and returns when it, and all that it has started, has ended. When ctx ends,
// it is killed, and the error is the cause. The program must have been prepared with [Prepare].
func Run(ctx context.Context, b *Box, s Streams) (Result, error) {
	if b.None {
		return runPlain(ctx, b, s)
	}
	return run(ctx, b, s)
}

// Executable returns the program to start as a child of this one. On Linux, the link still works
// when the file has been replaced by a newer release.
func Executable() (string, error) {
	const link = "/proc/self/exe"
	if _, err := os.Readlink(link); err == nil {
		return link, nil
	}
	return os.Executable()
}

// withDefaults returns the environment with the variables that every program gets.
func (b *Box) withDefaults(home, tmp string) []string {
	env := append([]string{}, b.Env...)
	for _, v := range [][2]string{{"PATH", SearchPath}, {"HOME", home}, {"TMPDIR", tmp}} {
		if !has(env, v[0]) {
			env = append(env, v[0]+"="+v[1])
		}
	}
	return env
}

func has(env []string, name string) bool {
	for _, v := range env {
		if len(v) > len(name) && v[:len(name)] == name && v[len(name)] == '=' {
			return true
		}
	}
	return false
}

// SearchPath is where programs are looked for that are named without a directory, and the PATH
// of each program that has no other.
const SearchPath = "/usr/local/bin:/usr/bin:/bin"
