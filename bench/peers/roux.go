// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
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

// emptyRoux is what the bench program weighs with nothing open: it is taken off
// Roux's memory as the harness is taken off that of the peers.
func emptyRoux(ctx context.Context, path string) (float64, error) {
	cmd := exec.CommandContext(ctx, path, "-report") // reads lines until its input ends
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	defer func() {
		_ = in.Close()
		_ = cmd.Wait() // it complains that no line came
	}()
	time.Sleep(500 * time.Millisecond)
	_, held, err := usage(cmd.Process.Pid)
	return megabytes(held), err
}

// A benchLine is what Roux's bench says of one shape.
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
	empty, err := emptyRoux(ctx, s.bench)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, s.bench, "-shapes", l.Shape, "-runs", "1", "-dir", s.work, "-n", strconv.Itoa(size))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		return err
	}
	seen := watch(cmd.Process.Pid)
	err = cmd.Wait()
	most := seen.end()
	if err != nil {
		return fmt.Errorf("%w: %s", err, lastLines(errs.Bytes(), 3))
	}
	var best *benchLine
	for text := range strings.SplitSeq(out.String(), "\n") {
		var b benchLine
		if json.Unmarshal([]byte(text), &b) != nil || b.Shape != l.Shape {
			continue
		}
		// The program measures some shapes at several sizes.
		if best == nil || distance(b.N, size) < distance(best.N, size) {
			best = &b
		}
	}
	if best == nil {
		return fmt.Errorf("the bench program printed no line for %s", l.Shape)
	}
	l.figures = figures{N: best.N, Runs: 1, Seconds: best.Seconds, P50: best.P50US, P99: best.P99US}
	if l.Shape == "fan" { // its seconds are the mean of many fans, its p50 is the middle one
		l.Seconds = best.P50US / 1e6
	}
	l.StepsPerS, l.CPUPerStep, l.RSSMB = best.StepsPerS, best.CPUPerStepUS, max(best.RSSMB, megabytes(most))
	if l.Shape == "idle" {
		l.RSSMB, l.BytesPerRun = best.RSSMB, best.More["bytes_per_run"]
		if l.BytesPerRun == 0 {
			l.BytesPerRun = best.RSSMB * (1 << 20) / float64(best.N)
		}
	}
	l.RSSMB, l.EmptyMB = l.RSSMB-empty, empty
	l.SyncsPer = best.More["syncs_per_step"]
	return nil
}

func distance(a, b int) int { return max(a-b, b-a) }

// version of what a peer runs, as this program was built with it.
func (p *spec) version() string {
	if p.name == rouxName {
		return "this checkout"
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	var found []string
	for _, module := range p.modules {
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
	if p.name == "restate" {
		found = append([]string{"server v" + restateVersion}, found...)
	}
	return strings.Join(found, ", ")
}
