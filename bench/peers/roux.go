// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// rouxBench builds Roux's bench program, once.
func rouxBench(ctx context.Context, root, work string) (string, error) {
	if _, err := os.Stat(filepath.Join(root, "bench")); err != nil {
		return "", fmt.Errorf("%s is no checkout of Roux with a bench program: %w", root, err)
	}
	path := filepath.Join(work, "bench")
	build := exec.CommandContext(ctx, "go", "build", "-o", path, "./bench")
	build.Dir = root
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build Roux's bench: %w: %s", err, lastLines(text, 3))
	}
	return path, nil
}

// emptyRoux returns the memory of the bench program with nothing open. It is subtracted
// from Roux's memory, as that of the harness is from the peers', and is measured in the
// same way, after free memory was returned to the system.
func emptyRoux(ctx context.Context, path, dir string) (float64, error) {
	out, err := exec.CommandContext(ctx, path, "-smoke", "-shapes", "idle", "-dir", dir).Output()
	if err != nil {
		return 0, fmt.Errorf("weigh Roux's bench: %w", err)
	}
	b := benchLineOf(out, "idle", 1)
	if b == nil || b.More["pss_empty_mb"] == 0 {
		return 0, errors.New("Roux's bench does not say what it weighs")
	}
	return b.More["pss_empty_mb"], nil
}

// A benchLine is the output of Roux's bench program for one shape.
type benchLine struct {
	Shape        string             `json:"shape"`
	N            int                `json:"n"`
	Seconds      float64            `json:"seconds"`
	StepsPerS    float64            `json:"steps_per_s"`
	P50US        float64            `json:"p50_us"`
	P99US        float64            `json:"p99_us"`
	CPUPerStepUS float64            `json:"cpu_us_per_step"`
	RSSMB        float64            `json:"rss_mb"`
	More         map[string]float64 `json:"more"`
}

// meetRoux runs one shape of the bench program, at the sizes of its bars.
func (s *session) meetRoux(ctx context.Context, p *spec, l *line) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout+30*time.Second)
	defer cancel()
	size := p.size(l.Shape, s.sizes)
	shape := l.Shape
	// Waiting runs have done nothing before, like those of the peers.
	args := []string{"-runs", "1", "-dir", s.work, "-n", strconv.Itoa(size), "-done", "0"}
	if shape == ingressShape {
		shape = "execute"
		args = append(args, "-keyed", "-press", s.press.String())
	}
	cmd := exec.CommandContext(ctx, s.bench, append(args, "-shapes", shape)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		return err
	}
	seen := watch(cmd.Process.Pid)
	err := cmd.Wait()
	most := seen.end()
	if err != nil {
		return fmt.Errorf("%w: %s", err, lastLines(errs.Bytes(), 3))
	}
	best := benchLineOf(out.Bytes(), shape, size)
	if best == nil {
		return fmt.Errorf("the bench program printed no line for %s", shape)
	}
	if l.Shape == ingressShape {
		l.fromExecute(best)
		return nil
	}
	l.figures = figures{N: best.N, Runs: 1, Seconds: best.Seconds, P50: best.P50US, P99: best.P99US}
	if l.Shape == "fan" { // its seconds are the mean of many fans, its p50 is their median
		l.Seconds = best.P50US / 1e6
	}
	l.StepsPerS, l.CPUPerStep, l.EmptyMB = best.StepsPerS, best.CPUPerStepUS, s.empty
	switch l.Shape {
	case "recover":
		l.Runs = best.N
	case "wide": // it has more steps, and executions of other sizes too
		l.N, l.CPUNarrow, l.CPUPerStep = defaultSizes["wide"], best.More["fan_10_us"], best.More["fan_1000_us"]
		l.Growth = l.CPUPerStep / l.CPUNarrow
	}
	held := max(best.RSSMB, megabytes(most))
	if l.Shape == "idle" {
		held, l.BytesPerRun = best.More["pss_mb"], best.More["bytes_per_run"]
	}
	l.RSSMB = held - s.empty
	l.SyncsPer = best.More["syncs_per_step"]
	return nil
}

// fromExecute takes the figures of Roux's shape execute, of which a step is a start.
func (l *line) fromExecute(b *benchLine) {
	l.figures = figures{N: b.N, Runs: int(b.More["accepted"]), Seconds: b.Seconds, P50: b.P50US, P99: b.P99US}
	l.Accepted, l.AcceptedPerS, l.DrainS = l.Runs, b.StepsPerS, b.More["drain_s"]
	l.Completed = l.Accepted - int(b.More["lost"])
	l.CarriedPerS = float64(l.Completed) / (l.Seconds + l.DrainS)
	l.CPUPerStep, l.CPUClient = b.CPUPerStepUS, b.More["client_cpu_us"]
}

// benchLineOf finds the line of a shape. If there are lines for several sizes, it returns
// the one whose size is nearest to size.
func benchLineOf(out []byte, shape string, size int) (best *benchLine) {
	for text := range bytes.Lines(out) {
		var b benchLine
		if json.Unmarshal(text, &b) != nil || b.Shape != shape {
			continue
		}
		if best == nil || distance(b.N, size) < distance(best.N, size) {
			best = &b
		}
	}
	return best
}

func distance(a, b int) int { return max(a-b, b-a) }

// version returns the version of a module that this program was built with.
func (s *spec) version() string {
	if s.name == rouxName {
		return "this checkout"
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	var found []string
	for _, module := range s.modules {
		for _, d := range info.Deps {
			if d.Path == module {
				name := ""
				if module == temporalSDK || module == restateModule {
					name = "SDK "
				}
				found = append(found, name+d.Version)
			}
		}
	}
	if s.name == "restate" {
		found = append([]string{"server v" + restateVersion}, found...)
	}
	return strings.Join(found, ", ")
}
