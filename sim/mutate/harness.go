// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

// suites lists, for a package below internal, the packages that depend on it. Their
// tests run when the package's own tests do not notice a mutant.
var suites = map[string][]string{
	"machine":          {"engine", "simulate"},
	"engine":           {"simulate", ""},
	"store/sqlite":     {"engine", "cli"},
	"store/sqlite/wal": {"store/sqlite"},
	"feed":             {"engine", "simulate"},
	"slots":            {"engine", "simulate"},
	"loops":            {"engine", "simulate"},
	"retention":        {"engine", "simulate"},
	"worker":           {"engine"},
	"blob":             {"builtin", "cli"},
}

// A harness tries the mutants of one package.
type harness struct {
	root    string
	dir     string // for overlays and test binaries
	tests   []suite
	mutants []mutant
}

// A suite is the tests of one package, with the time they take on unchanged code.
type suite struct {
	pkg   string // import path relative to the root
	usual time.Duration
}

// The outcomes of a mutant.
const (
	killed     = "killed"
	survived   = "survived"
	invalid    = "does not compile"
	equivalent = "equivalent"
)

type outcome struct {
	word    string
	by      string // the suite that killed it, and the first test that failed
	seconds float64
}

// newHarness lists the mutants of a package in an order drawn from the seed, and times
// each suite on the unchanged code.
func newHarness(ctx context.Context, root, pkg string, seed uint64) (*harness, error) {
	rel := "./" + filepath.Join("internal", pkg)
	listed, err := goCommand(ctx, root, "list", "-f", `{{join .GoFiles "\n"}}`, rel).Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w", rel, err)
	}
	mutants, err := mutantsOf(root, filepath.Join("internal", pkg), strings.Fields(string(listed)))
	if err != nil {
		return nil, err
	}
	dice := rand.New(rand.NewPCG(seed, 0))
	dice.Shuffle(len(mutants), func(i, j int) { mutants[i], mutants[j] = mutants[j], mutants[i] })
	dir, err := os.MkdirTemp("", "roux-mutate-")
	if err != nil {
		return nil, err
	}
	h := &harness{root: root, dir: dir, mutants: mutants}
	for _, p := range append([]string{rel}, suitesOf(pkg)...) {
		s := suite{pkg: p}
		began := time.Now()
		word, said := h.runSuite(ctx, s, filepath.Join(dir, "unchanged"), "")
		if word != survived {
			h.close()
			return nil, fmt.Errorf("the tests of %s fail on unchanged code:\n%s", p, said)
		}
		s.usual = time.Since(began)
		h.tests = append(h.tests, s)
	}
	return h, nil
}

func suitesOf(pkg string) (paths []string) {
	for _, s := range suites[pkg] {
		if s == "" {
			paths = append(paths, ".") // the root package
			continue
		}
		paths = append(paths, "./"+filepath.Join("internal", s))
	}
	return paths
}

func (h *harness) close() { _ = os.RemoveAll(h.dir) } // a temporary directory

// play tries mutants until all are tried, the time is up, or ctx is done.
func (h *harness) play(ctx context.Context, out io.Writer, o options, until time.Time, judged map[string]string) (score, error) {
	var (
		total score
		next  int
		fault error
		mu    sync.Mutex
		group sync.WaitGroup
	)
	take := func() (mutant, int, bool) {
		mu.Lock()
		defer mu.Unlock()
		if next == len(h.mutants) || o.n > 0 && next == o.n || fault != nil || time.Now().After(until) || ctx.Err() != nil {
			return mutant{}, 0, false
		}
		next++
		return h.mutants[next-1], next, true
	}
	for range max(1, o.workers) {
		group.Go(func() {
			for m, i, ok := take(); ok; m, i, ok = take() {
				result, err := h.try(ctx, m, i, judged)
				mu.Lock()
				switch {
				case err != nil:
					fault = errors.Join(fault, err)
				case ctx.Err() == nil:
					total.count(result)
					show(out, o, m, result)
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	return total, fault
}

func (s *score) count(o outcome) {
	switch o.word {
	case killed:
		s.killed++
	case survived:
		s.survived++
	case equivalent:
		s.equivalent++
	default:
		s.invalid++
	}
}

// try runs the suites against one mutant, the nearest package first.
func (h *harness) try(ctx context.Context, m mutant, i int, judged map[string]string) (outcome, error) {
	if _, ok := judged[m.key()]; ok {
		return outcome{word: equivalent}, nil
	}
	began := time.Now()
	dir := filepath.Join(h.dir, fmt.Sprint(i))
	defer os.RemoveAll(dir)
	overlay, err := h.overlay(dir, m)
	if err != nil || overlay == "" {
		return outcome{word: invalid}, err
	}
	for _, s := range h.tests {
		word, by := h.runSuite(ctx, s, filepath.Join(dir, "test"), overlay)
		if word != survived {
			return outcome{word: word, by: s.pkg + ": " + by, seconds: time.Since(began).Seconds()}, nil
		}
	}
	return outcome{word: survived, seconds: time.Since(began).Seconds()}, nil
}

// overlay writes the changed file and the overlay list that replaces the real file by
// it. The name is empty when the result is not valid Go.
func (h *harness) overlay(dir string, m mutant) (string, error) {
	real := filepath.Join(h.root, m.file)
	source, err := os.ReadFile(real)
	if err != nil {
		return "", err
	}
	changed, err := m.apply(source)
	if err != nil {
		return "", nil //nolint:nilerr // not Go: the mutant does not count
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	file := filepath.Join(dir, "changed.go")
	if err := os.WriteFile(file, changed, 0o600); err != nil {
		return "", err
	}
	list, err := json.Marshal(map[string]map[string]string{"Replace": {real: file}})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, list, 0o600)
}

var failure = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)|^(panic: .*|fatal error: .*)$`)

// runSuite builds the tests of one package with an overlay, which may be empty, and runs
// them. word is killed, survived or invalid; by is the test that noticed.
func (h *harness) runSuite(ctx context.Context, s suite, binary, overlay string) (word, by string) {
	args := []string{"test", "-c", "-o", binary}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	if said, err := goCommand(ctx, h.root, append(args, s.pkg)...).CombinedOutput(); err != nil {
		return invalid, string(said)
	}
	defer os.Remove(binary)
	limit := 10 * time.Minute
	if s.usual > 0 {
		limit = 10*time.Second + 4*s.usual
	}
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	// A mutant may allocate without end, so the shell limits its address space.
	test := exec.CommandContext(within, "sh", "-c", `ulimit -v 16000000; exec "$@"`, "sh", binary,
		"-test.short", "-test.failfast", "-test.timeout", limit.String())
	test.Dir = filepath.Join(h.root, s.pkg)
	test.WaitDelay = 5 * time.Second
	said, err := test.CombinedOutput()
	if err == nil {
		return survived, ""
	}
	if found := failure.FindSubmatch(said); found != nil {
		return killed, string(bytes.TrimSpace(append(found[1], found[2]...)))
	}
	return killed, err.Error()
}

func goCommand(ctx context.Context, dir string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, "go", args...)
	c.Dir = dir
	c.WaitDelay = 5 * time.Second
	return c
}

// readEquivalent reads the mutants that were judged to be equivalent: a line "#
// reason" comes before the keys that it is about, up to the next empty line.
func readEquivalent(path string) (map[string]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	judged := map[string]string{}
	reason := ""
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		switch {
		case line == "":
			reason = ""
		case strings.HasPrefix(line, "#"):
			reason = strings.TrimSpace(line[1:])
		case reason == "":
			return nil, fmt.Errorf("%s: %q has no reason above it", path, line)
		default:
			judged[line] = reason
		}
	}
	return judged, lines.Err()
}
