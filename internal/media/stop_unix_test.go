// SPDX-License-Identifier: Apache-2.0

//go:build unix

package media

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/roux-engine/roux/fault"
)

// signalMisbehaviours are misbehaviours by signals, which only Unix has.
var signalMisbehaviours = map[string]func(){
	// A service manager that stops a service signals all its processes.
	"stopped": func() {
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
			if err := syscall.Kill(syscall.Getpid(), sig); err != nil {
				panic(err)
			}
		}
	},
	// A terminal sends Ctrl-C to the whole foreground process group.
	"group": func() {
		if group := syscall.Getpgrp(); group != syscall.Getpid() {
			panic(fmt.Sprintf("the child is in the group %d of its parent", group))
		}
	},
	// To the runtime, a signal from outside looks like a fault in its own code.
	"fault of the runtime": func() {
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGSEGV); err != nil {
			panic(err)
		}
		select {}
	},
}

// F45: Ctrl-C ends the work through the parent. If the child died of it, an
// undamaged file would be recorded as damaged.
func TestF45_SignalsToAllDoNotEndTheChild(t *testing.T) {
	defer goleak.VerifyNone(t)
	for _, kind := range []string{"stopped", "group"} {
		r := New(Config{})
		r.misbehaviour = kind
		if doc, err := r.Info(context.Background(), bytes.NewReader(report(t))); err != nil || doc.PageCount != 4 {
			t.Errorf("%s: %+v, %v", kind, doc, err)
		}
	}
}

// I15, I16: near the memory limit, the garbage collector writes to memory that
// it was not given, and the process crashes. A nil pointer in our code is a
// panic, and reported as damage of the file.
func TestI15_I16_FaultOfTheRuntime(t *testing.T) {
	defer goleak.VerifyNone(t)
	for kind, want := range map[string]fault.Code{"fault of the runtime": fault.FileTooLarge, "goroutine nil": fault.FileInvalid} {
		r := New(Config{})
		r.misbehaviour = kind
		if _, err := r.Info(context.Background(), bytes.NewReader(report(t))); !errors.Is(err, want) {
			t.Errorf("%s: error = %v, want %s: %v", kind, err, want, errors.Unwrap(err))
		}
	}
}

// I15: every text with which a child without memory was seen to end, and texts
// that do not mean that.
func TestI15_OutOfMemoryTexts(t *testing.T) {
	for said, want := range map[string]fault.Code{
		"fatal error: runtime: cannot allocate memory":                                  fault.FileTooLarge,
		"fatal error: runtime: out of memory":                                           fault.FileTooLarge,
		"==9==ERROR: ThreadSanitizer failed to allocate 0x2000000 (33554432) bytes":     fault.FileTooLarge,
		"runtime: goroutine stack exceeds 67108864-byte limit":                          fault.FileTooLarge,
		"runtime/cgo: pthread_create failed: Resource temporarily unavailable\nSIGABRT": fault.FileTooLarge,
		"runtime: failed to create new OS thread (have 5 already; errno=11)":            fault.FileTooLarge,
		"SIGSEGV: segmentation violation\nPC=0x46e69d m=3 sigcode=1 addr=0x0":           fault.FileTooLarge,
		"fatal error: unexpected signal during runtime execution\n[signal SIGSEGV":      fault.FileTooLarge,
		"panic: runtime error: invalid memory address or nil pointer dereference\n" +
			"[signal SIGSEGV: segmentation violation code=0x1 addr=0x0 pc=0x46e69d]": fault.FileInvalid,
		"fatal error: concurrent map writes": fault.FileInvalid,
		"":                                   fault.FileInvalid,
	} {
		if err := exitFault(errors.New("exit status 2"), said, request{Op: opInfo}); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %s", said, err, want)
		}
	}
}
