// SPDX-License-Identifier: Apache-2.0

package confine

import (
	"context"
	"errors"
	"os/exec"
	"runtime"
	"time"
)

// runPlain runs a program without confinement. A goroutine of its own starts it and waits for
// it, because on Linux the kernel kills it when the thread that started it ends.
func runPlain(ctx context.Context, b *Box, s Streams) (Result, error) {
	type outcome struct {
		res Result
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		res, err := startPlain(ctx, b, s)
		done <- outcome{res, err}
	}()
	o := <-done
	return o.res, o.err
}

func startPlain(ctx context.Context, b *Box, s Streams) (Result, error) {
	cmd := exec.CommandContext(ctx, b.Program)
	cmd.Args, cmd.Dir = b.Args, b.WorkDir()
	cmd.Env = b.withDefaults(b.WorkDir(), b.WorkDir())
	cmd.Stdout, cmd.Stderr = s.Stdout, s.Stderr
	if s.Stdin != nil {
		cmd.Stdin = s.Stdin
	}
	cmd.WaitDelay = 2 * time.Second // for what left its process group and keeps its output open
	ownGroup(cmd)
	cmd.Cancel = func() error { return killGroup(cmd) }
	if err := cmd.Start(); err != nil {
		if ctx.Err() != nil {
			return Result{}, context.Cause(ctx)
		}
		return Result{Failed: err.Error()}, nil
	}
	err := waitGroup(cmd)
	if ctx.Err() != nil {
		return Result{}, context.Cause(ctx)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		return Result{}, err
	}
	return ended(cmd.ProcessState), nil
}
