// SPDX-License-Identifier: Apache-2.0

//go:build unix

package media

import (
	"bytes"
	"context"
	"fmt"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// stopProbes are the misbehaviours that only this system knows.
var stopProbes = map[string]func(){
	// A service manager that stops a service signals all of its processes.
	"stopped": func() {
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
			if err := syscall.Kill(syscall.Getpid(), sig); err != nil {
				panic(err)
			}
		}
	},
	// A terminal sends Ctrl-C to the whole group in front.
	"group": func() {
		if group := syscall.Getpgrp(); group != syscall.Getpid() {
			panic(fmt.Sprintf("the child is in the group %d of its parent", group))
		}
	},
}

// F45: Ctrl-C ends the parent's work in the parent's way. A child that died of
// it would have recorded a sound file as damaged.
func TestF45_SignalsToAllDoNotEndTheChild(t *testing.T) {
	defer goleak.VerifyNone(t)
	for kind := range stopProbes {
		r := New(Config{})
		r.probe = kind
		if doc, err := r.Info(context.Background(), bytes.NewReader(report(t))); err != nil || doc.PageCount != 4 {
			t.Errorf("%s: %+v, %v", kind, doc, err)
		}
	}
}
