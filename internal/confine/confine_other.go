// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package confine

import (
	"context"
	"os"
	"path/filepath"
	"runtime"

	"github.com/roux-engine/roux/fault"
)

// Dispatch returns: a process is a child on Linux only.
func Dispatch() {}

// Check reports that commands cannot be confined here.
func Check(context.Context) error {
	return fault.New(fault.ConfineUnavailable, "Roux confines commands on Linux only, and this is %s; run them on a server that is, or say `confine: none` of a command that you trust with everything that this user may do", runtime.GOOS)
}

// Prepare makes the directories of a box.
func Prepare(b *Box) error { return os.Mkdir(filepath.Join(b.Dir, work), 0o700) }

// Own has nothing to do.
func Own(*Box, string) error { return nil }

func run(ctx context.Context, _ *Box, _ Streams) (Result, error) { return Result{}, Check(ctx) }
