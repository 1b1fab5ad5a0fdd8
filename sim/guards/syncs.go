// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/roux-engine/roux/internal/mutation"
)

// fsyncGuard is the guard that is also checked in the real binary.
const fsyncGuard = "fsync"

// chainSteps is how many steps the real binary executes, with one commit each.
const chainSteps = 20

// syncs counts the syncs of the real binary, with the guard and without it. A chain of
// steps makes one commit per step, and each commit syncs once. The simulator's disk is
// a model, so only this shows that the real store is synced.
func syncs(ctx context.Context, dir string, g mutation.Guard) (caught, error) {
	c := caught{Guard: "fsync, real", Keeps: g.Keeps}
	if _, err := exec.LookPath("strace"); err != nil {
		c.Skipped, c.By = true, "there is no strace on this machine to count system calls with"
		return c, nil
	}
	began := time.Now()
	with, err := countSyncs(ctx, dir, "with", "")
	if err != nil {
		return c, err
	}
	without, err := countSyncs(ctx, dir, "without", g.Name)
	if err != nil {
		return c, err
	}
	c.Seconds = time.Since(began).Seconds()
	c.Caught = with >= chainSteps && without < chainSteps/2
	c.By = fmt.Sprintf("%d syncs for %d steps in a row, %d without the guard", with, chainSteps, without)
	return c, nil
}

// countSyncs runs a chain with the real binary, unchanged or without a guard, and
// counts fsync and fdatasync.
func countSyncs(ctx context.Context, dir, name, guard string) (int, error) {
	bin, tag := filepath.Join(dir, "roux-"+name), ""
	if guard != "" {
		tag = mutation.Tag
	}
	if err := build(ctx, bin, tag, "./cmd/roux"); err != nil {
		return 0, err
	}
	var recipe strings.Builder
	recipe.WriteString("name: chain\nsteps:\n")
	for i := range chainSteps {
		fmt.Fprintf(&recipe, "  - {id: s%d, action: {name: hash, parameters: {text: \"%d\"}}}\n", i, i)
	}
	path := filepath.Join(dir, "chain.yaml")
	if err := os.WriteFile(path, []byte(recipe.String()), 0o600); err != nil {
		return 0, err
	}
	calls := filepath.Join(dir, name+".calls")
	cmd := exec.CommandContext(ctx, "strace", "-f", "-qq", "-e", "trace=fsync,fdatasync", "-o", calls,
		bin, "--data", filepath.Join(dir, "data-"+name), "run", path)
	cmd.Dir = dir
	if guard != "" {
		cmd.Env = append(os.Environ(), mutation.Variable+"="+guard)
	}
	if said, err := cmd.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, said)
	}
	text, err := os.ReadFile(calls)
	if err != nil {
		return 0, err
	}
	return len(finished.FindAll(text, -1)), nil
}

// finished matches a call that returned, in one line or after another thread's.
var finished = regexp.MustCompile(`(?m)(fsync|fdatasync)(\(\d+\)| resumed>\)) += 0$`)
