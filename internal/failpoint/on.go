// SPDX-License-Identifier: Apache-2.0

//go:build failpoints

package failpoint

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// delay is longer than the time between any two points.
const delay = 300 * time.Millisecond

// A rule is what happens at a point.
type rule struct {
	action string
	nth    int
}

var state = sync.OnceValue(func() *points {
	p := &points{rules: map[Point]rule{}, passed: map[Point]int{}, log: os.Getenv(Log)}
	for _, part := range strings.Split(os.Getenv(Setting), ",") {
		name, r, err := parse(part)
		if err != nil {
			panic(err) // only tests set it, and a wrong setting must not go unnoticed
		}
		if name != "" {
			p.rules[name] = r
		}
	}
	return p
})

type points struct {
	mu     sync.Mutex
	rules  map[Point]rule
	passed map[Point]int
	log    string
}

// parse reads POINT=ACTION@N.
func parse(part string) (Point, rule, error) {
	part = strings.TrimSpace(part)
	if part == "" {
		return "", rule{}, nil
	}
	name, what, ok := strings.Cut(part, "=")
	action, nth, counted := strings.Cut(what, "@")
	r := rule{action: action, nth: 1}
	if counted {
		n, err := strconv.Atoi(nth)
		if err != nil || n < 1 {
			return "", r, fmt.Errorf("%s: %q: want a number of times, at least 1", Setting, part)
		}
		r.nth = n
	}
	known := false
	for _, p := range Points {
		known = known || p.Point == Point(name)
	}
	switch action {
	case "die", "panic", "error", "delay":
	default:
		ok = false
	}
	if !ok || !known {
		return "", r, fmt.Errorf("%s: %q: want POINT=ACTION@N with a known point and one of die, panic, error, delay", Setting, part)
	}
	return Point(name), r, nil
}

// Hit marks a point whose caller handles errors. It returns the error that was injected
// there, or nil.
func Hit(p Point) error {
	switch action := state().pass(p); action {
	case "":
	case "error":
		return fmt.Errorf("injected error at failpoint %s", p)
	default:
		inject(p, action)
	}
	return nil
}

// Pass marks a point whose caller cannot handle an error.
func Pass(p Point) {
	if action := state().pass(p); action != "" {
		inject(p, action)
	}
}

// pass counts a visit of the point and returns the action to do now.
func (s *points) pass(p Point) (action string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.passed[p]++
	n := s.passed[p]
	r := s.rules[p]
	now := r.nth == n
	if n == 1 {
		s.write(string(p))
	}
	if now {
		s.write("hit " + string(p) + " " + r.action)
		return r.action
	}
	return ""
}

// write appends a line without syncing it; the kernel writes it even if the process is
// killed.
func (s *points) write(line string) {
	if s.log == "" {
		return
	}
	f, err := os.OpenFile(s.log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		panic(err)
	}
	if _, err := f.WriteString(line + "\n"); err != nil {
		panic(err)
	}
	_ = f.Close()
}

func inject(p Point, action string) {
	switch action {
	case "die":
		self, err := os.FindProcess(os.Getpid())
		if err == nil {
			err = self.Kill()
		}
		if err != nil {
			panic(err)
		}
		select {} // the process is killed in a moment
	case "delay":
		time.Sleep(delay)
	default:
		panic("injected panic at failpoint " + string(p))
	}
}
