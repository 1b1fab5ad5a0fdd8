// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// build makes the binary as `make build` does, with tags if given, and returns its
// path.
func build(ctx context.Context, dir, name, tags string) (string, error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return "", err
	}
	exe := filepath.Join(dir, name)
	args := []string{"build", "-trimpath", "-o", exe}
	if tags != "" {
		args = append(args, "-tags", tags)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./cmd/roux")...)
	cmd.Dir = root
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
	}
	return exe, nil
}

// moduleRoot is the directory of the module's sources, from which the bench builds the
// binary.
func moduleRoot(ctx context.Context) (string, error) {
	var talk bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/roux-engine/roux")
	cmd.Stderr = &talk
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("find the module (run this inside it): %w\n%s", err, talk.Bytes())
	}
	return strings.TrimSpace(string(out)), nil
}
