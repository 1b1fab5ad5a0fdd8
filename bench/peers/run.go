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
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A line is the result of one peer in one run of one shape; the raw results are lines of
// JSON objects.
type line struct {
	Peer    string `json:"peer"`
	Version string `json:"version"`
	Shape   string `json:"shape"`
	Run     int    `json:"run"`
	figures
	StepsPerS    float64 `json:"steps_per_s,omitempty"`
	CPUPerStep   float64 `json:"cpu_us_per_step"`         // of the worker, the server and the database; idle, ingress: an execution; wide: of the one execution
	CPUNarrow    float64 `json:"cpu_us_narrow,omitempty"` // wide: a step of the executions of ten
	Growth       float64 `json:"growth,omitempty"`        // wide: the one over the other
	RSSMB        float64 `json:"rss_mb"`                  // maximum, without this program; idle: when all wait
	EmptyMB      float64 `json:"empty_mb,omitempty"`      // this program with nothing open, which is not in rss_mb
	BytesPerRun  float64 `json:"bytes_per_run,omitempty"` // idle: what the waiting executions added, divided among them
	SyncsPer     float64 `json:"syncs_per_step,omitempty"`
	Accepted     int     `json:"accepted,omitempty"` // ingress: executions
	Completed    int     `json:"completed,omitempty"`
	AcceptedPerS float64 `json:"accepted_per_s,omitempty"`
	CarriedPerS  float64 `json:"carried_out_per_s,omitempty"` // until all have completed
	DrainS       float64 `json:"drain_s,omitempty"`           // from the last accepted start until all have completed
	CPUClient    float64 `json:"cpu_us_client,omitempty"`     // an execution
	Settings     string  `json:"settings,omitempty"`
	Load         float64 `json:"load"` // of the machine, one minute
	At           string  `json:"at"`
	Error        string  `json:"error,omitempty"`
}

// syncShape is a chain that is run only to count its syncs.
const syncShape = "syncs"

// A session is one invocation of the command.
type session struct {
	options
	work    string
	cluster *pgCluster
	restate string
	bench   string  // Roux's bench program
	empty   float64 // its memory in MB with nothing open
	missing map[string]string
	raw     io.Writer
	began   time.Time
	done    int // complete rounds
	lines   []line
}

// measure prepares what the peers need, runs everything and prints the table.
func measure(ctx context.Context, o options) (err error) {
	s := &session{options: o, missing: map[string]string{}, raw: io.Discard, began: time.Now()}
	if s.work, err = os.MkdirTemp(o.dir, "roux-peers-"); err != nil {
		return err
	}
	defer os.RemoveAll(s.work)
	// The database runs as another user, who needs access to this directory.
	if err := os.Chmod(s.work, 0o711); err != nil {
		return err
	}
	if o.out != "" {
		if err := os.MkdirAll(o.out, 0o755); err != nil {
			return err
		}
		f, err := os.Create(filepath.Join(o.out, s.began.UTC().Format("2006-01-02T150405Z")+".jsonl"))
		if err != nil {
			return err
		}
		defer f.Close()
		s.raw = f
	}
	s.prepare(ctx)
	defer func() { err = errors.Join(err, s.cluster.halt()) }()
	if err := s.rounds(ctx); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "peers: %.0f s in all\n", time.Since(s.began).Seconds())
	return s.print(os.Stdout)
}

// reportOf prints the results of an earlier invocation. Peers without lines in the file
// are omitted.
func reportOf(o options, w io.Writer) error {
	text, err := os.ReadFile(o.report)
	if err != nil {
		return err
	}
	s := &session{options: o, missing: map[string]string{}}
	s.peers = nil
	for row := range bytes.Lines(text) {
		var l line
		if err := json.Unmarshal(row, &l); err != nil {
			return fmt.Errorf("%s: %w", o.report, err)
		}
		if !slices.Contains(s.peers, l.Peer) {
			s.peers = append(s.peers, l.Peer)
		}
		if l.Shape == "" {
			s.missing[l.Peer] = l.Error
			continue
		}
		s.lines, s.done = append(s.lines, l), max(s.done, l.Run)
	}
	if len(s.peers) == 0 {
		return fmt.Errorf("%s has no lines", o.report)
	}
	all := peerNames()
	slices.SortFunc(s.peers, func(a, b string) int { return slices.Index(all, a) - slices.Index(all, b) })
	if s.began, err = time.Parse(time.RFC3339, s.lines[0].At); err != nil {
		return err
	}
	return s.print(w)
}

// print writes the table.
func (s *session) print(w io.Writer) error {
	var loads []float64
	for _, l := range s.lines {
		loads = append(loads, l.Load)
	}
	if len(loads) == 0 {
		return errors.New("nothing was measured")
	}
	fmt.Fprintf(w, "Measured %s, medians of %d runs, interleaved. Load of the machine meanwhile: %.1f to %.1f.\n\n",
		s.began.UTC().Format("2006-01-02 15:04 UTC"), s.done, slices.Min(loads), slices.Max(loads))
	t := s.table()
	if len(t.judged()) > 0 {
		fmt.Fprint(w, t.markdown())
	}
	if t.entered() {
		fmt.Fprint(w, t.ingress())
	}
	if s.check {
		return t.check(w)
	}
	return nil
}

// rounds runs every shape with every peer, as often as -runs says. The peers are
// interleaved, so that other load on the machine affects all of them.
func (s *session) rounds(ctx context.Context) error {
	s.countSyncs(ctx)
	var last time.Duration // duration of a round; the first is the longest
	late := func(more time.Duration) bool {
		if time.Since(s.began)+more <= s.within {
			return false
		}
		fmt.Fprintf(os.Stderr, "peers: %d of %d runs fit into -within %s\n", s.done, s.runs, s.within)
		return true
	}
	for run := 1; run <= s.runs; run++ {
		round := time.Now()
		if run > 1 && late(last) {
			return nil
		}
		for _, shape := range s.shapes {
			for _, name := range s.peers {
				if late(0) {
					return nil
				}
				s.meet(ctx, specOf(name), shape, run)
				if err := ctx.Err(); err != nil {
					return err
				}
			}
		}
		last, s.done = time.Since(round), run
	}
	return nil
}

// countSyncs runs a chain of each peer under strace. Roux's own program counts.
func (s *session) countSyncs(ctx context.Context) {
	if !s.syncs || !slices.ContainsFunc(s.shapes, func(shape string) bool { return shape != ingressShape }) {
		return
	}
	if _, err := exec.LookPath("strace"); err != nil {
		fmt.Fprintln(os.Stderr, "peers: syncs are not counted: no strace on this machine")
		return
	}
	for _, name := range s.peers {
		if name != rouxName {
			s.meet(ctx, specOf(name), syncShape, 0)
		}
	}
}

// prepare determines which peers cannot run here, and why.
func (s *session) prepare(ctx context.Context) {
	need := func(what string) bool {
		return slices.ContainsFunc(s.peers, func(name string) bool { return specOf(name).needs == what })
	}
	var errs = map[string]error{}
	if need("postgres") {
		s.cluster, errs["postgres"] = newCluster(ctx, s.work)
	}
	if need("npm") {
		s.restate, errs["npm"] = restateServer(ctx)
	}
	for _, name := range s.peers {
		if err := errs[specOf(name).needs]; err != nil {
			s.missing[name] = err.Error()
		}
	}
	if slices.Contains(s.peers, rouxName) {
		var err error
		if s.bench, err = rouxBench(ctx, s.root, s.work); err == nil {
			s.empty, err = emptyRoux(ctx, s.bench, s.work)
		}
		if err != nil {
			s.missing[rouxName] = err.Error()
		}
	}
	for name, why := range s.missing {
		fmt.Fprintf(os.Stderr, "%s: not run: %s\n", name, why)
		s.keep(line{Peer: name, Error: why, At: s.began.UTC().Format(time.RFC3339)})
	}
}

// meet measures one peer with one shape and stores the line, also for a
// failure.
func (s *session) meet(ctx context.Context, p *spec, shape string, run int) {
	if s.missing[p.name] != "" || ctx.Err() != nil || shape != syncShape && p.size(shape, s.sizes) == 0 {
		return
	}
	if run > 1 && slices.Contains(firstOnly, shape) {
		return
	}
	// A shape that failed once, mostly by a timeout, would take as long again.
	if slices.ContainsFunc(s.lines, func(l line) bool { return l.Peer == p.name && l.Shape == shape && l.Error != "" }) {
		return
	}
	began := time.Now()
	l := line{Peer: p.name, Version: p.version(), Settings: p.with(shape), Shape: shape, Run: run, Load: load(), At: began.UTC().Format(time.RFC3339)}
	var err error
	if p.open == nil {
		err = s.meetRoux(ctx, p, &l)
	} else {
		err = s.meetPeer(ctx, p, &l)
	}
	if err != nil {
		l.Error = err.Error()
		fmt.Fprintf(os.Stderr, "%-22s %-6s FAILED after %.1f s: %v\n", p.name, shape, time.Since(began).Seconds(), err)
	} else {
		fmt.Fprintf(os.Stderr, "%-22s %-6s %s (%.1f s in all, load %.1f)\n", p.name, shape, l.summary(), time.Since(began).Seconds(), l.Load)
	}
	s.lines = append(s.lines, l)
	s.keep(l)
}

// keep appends a line to the raw results.
func (s *session) keep(l line) {
	text, err := json.Marshal(l)
	if err == nil {
		_, err = s.raw.Write(append(text, '\n'))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers: raw results:", err)
	}
}

func (l *line) summary() string {
	switch l.Shape {
	case "chain":
		return fmt.Sprintf("n=%d p50 %.0f us, p99 %.0f us, CPU %.0f us a step", l.N, l.P50, l.P99, l.CPUPerStep)
	case "submit":
		return fmt.Sprintf("n=%d p50 %.0f us, p99 %.0f us", l.N, l.P50, l.P99)
	case "idle":
		return fmt.Sprintf("n=%d %.0f MB, %.0f B a waiting run", l.N, l.RSSMB, l.BytesPerRun)
	case "recover":
		return fmt.Sprintf("n=%d %.3f s", l.N, l.Seconds)
	case ingressShape:
		return fmt.Sprintf("n=%d %.0f accepted/s, p50 %.0f us, p99 %.0f us, CPU %.0f us each (client %.0f), %d of %d completed after %.1f s",
			l.N, l.AcceptedPerS, l.P50, l.P99, l.CPUPerStep, l.CPUClient, l.Completed, l.Accepted, l.DrainS)
	case "wide":
		return fmt.Sprintf("n=%d CPU %.0f us a step of %d, %.0f us of one: %.2f", l.N, l.CPUNarrow, narrow, l.CPUPerStep, l.Growth)
	case syncShape:
		return fmt.Sprintf("%.2f syncs a step of a chain of %d", l.SyncsPer, l.N)
	default:
		return fmt.Sprintf("n=%d %.3f s, %.0f steps/s, CPU %.0f us a step, %.0f MB", l.N, l.Seconds, l.StepsPerS, l.CPUPerStep, l.RSSMB)
	}
}

// meetPeer starts the child, and the database for it, and measures between its
// two reports.
func (s *session) meetPeer(ctx context.Context, p *spec, l *line) (err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout+30*time.Second)
	defer cancel()
	dir, err := os.MkdirTemp(s.work, "peer-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	shape, size := l.Shape, p.size(l.Shape, s.sizes)
	var counted *counter
	var tracer, databaseTracer []string
	if shape == syncShape {
		shape, size = "chain", p.size("chain", s.sizes)
		if counted, err = newCounter(s.work); err != nil {
			return err
		}
		tracer, databaseTracer = counted.tracer("child"), counted.tracer("database")
	}
	args := append(slices.Clone(tracer), self(), childCommand, "-peer", p.name, "-shape", shape, "-n", strconv.Itoa(size),
		"-timeout", s.timeout.String(), "-dir", dir, "-restate", s.restate)
	var roots []int
	if p.needs == "postgres" {
		if err := s.cluster.start(ctx, databaseTracer); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.cluster.halt()) }()
		url, err := s.cluster.database(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.cluster.drop(context.WithoutCancel(ctx))) }()
		args = append(args, "-postgres", url)
		roots = append(roots, s.cluster.cmd.Process.Pid)
	}
	c, err := startChild(ctx, dir, args)
	if err != nil {
		return err
	}
	defer c.end()
	if shape == "recover" {
		return s.recovery(ctx, p, l, c, args)
	}
	roots = append(roots, c.cmd.Process.Pid)
	if shape == ingressShape {
		return s.enter(ctx, p, l, c, roots)
	}
	return c.measure(l, roots, counted)
}

// A childProcess is the process in which a peer runs.
type childProcess struct {
	cmd     *exec.Cmd
	dir     string
	log     string
	reports *json.Decoder
	pipe    *os.File
	answer  io.WriteCloser
}

func self() string {
	path, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return path
}

func startChild(ctx context.Context, dir string, args []string) (*childProcess, error) {
	in, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer out.Close()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	c := &childProcess{dir: dir, log: log.Name(), pipe: in, reports: json.NewDecoder(bufio.NewReader(in))}
	c.cmd = exec.CommandContext(ctx, args[0], args[1:]...)
	c.cmd.Stdout, c.cmd.Stderr, c.cmd.ExtraFiles = log, log, []*os.File{out}
	// A separate process group, so that servers which the peer started end with
	// it.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.cmd.Cancel = func() error { return syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL) }
	if c.answer, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	return c, c.cmd.Start()
}

// next waits for a phase of the child.
func (c *childProcess) next(phase string) (report, error) {
	var r report
	err := c.reports.Decode(&r)
	switch {
	case err != nil:
		text, _ := os.ReadFile(c.log)
		return r, fmt.Errorf("the peer's process ended before %q: %s", phase, lastLines(text, 6))
	case r.Phase == "error":
		return r, errors.New(r.Error)
	case r.Phase != phase:
		return r, fmt.Errorf("the peer's process reports %q, want %q", r.Phase, phase)
	}
	return r, nil
}

func (c *childProcess) goOn() error {
	_, err := io.WriteString(c.answer, "\n")
	return err
}

// tell answers with a value.
func (c *childProcess) tell(v any) error { return json.NewEncoder(c.answer).Encode(v) }

// A moment is a report of the child and the usage of its processes at that
// time.
type moment struct {
	report
	cpu  time.Duration
	held int64
}

// at waits for a phase and measures the usage.
func (c *childProcess) at(phase string, roots ...int) (m moment, err error) {
	if m.report, err = c.next(phase); err == nil {
		m.cpu, m.held, err = usage(roots...)
	}
	return m, err
}

// measure computes the figures between the child's reports.
func (c *childProcess) measure(l *line, roots []int, counted *counter) error {
	// This program has every engine linked into it; that memory is subtracted.
	empty, err := c.at("empty", c.cmd.Process.Pid)
	if err != nil {
		return err
	}
	if err := c.goOn(); err != nil {
		return err
	}
	begin, err := c.at("begin", roots...)
	if err != nil {
		return err
	}
	syncsBefore := counted.count()
	p := watch(roots...)
	if err := c.goOn(); err != nil {
		return err
	}
	half, end, err := c.halves(l.Shape, roots)
	most := p.end()
	if err != nil {
		return err
	}
	l.figures = *end.Figures
	shape := l.Shape
	if shape == syncShape {
		shape = "chain"
	}
	steps := float64(l.steps(shape))
	l.CPUPerStep = float64((end.cpu - begin.cpu).Microseconds()) / steps
	l.RSSMB, l.EmptyMB = megabytes(max(most, end.held)-empty.held), megabytes(empty.held)
	switch l.Shape {
	case "idle":
		l.RSSMB, l.BytesPerRun = megabytes(end.held-empty.held), float64(end.held-begin.held)/float64(l.N)
	case "wide":
		l.grown(half.cpu-begin.cpu, end.cpu-half.cpu)
	case syncShape:
		l.SyncsPer = float64(counted.count()-syncsBefore) / steps
	default:
		l.StepsPerS = float64(l.N) / l.Seconds // for chain both are of one execution
	}
	return c.goOn()
}

// halves waits for the end of a shape; for wide it also measures after the
// first half.
func (c *childProcess) halves(shape string, roots []int) (half, end moment, err error) {
	if shape == "wide" {
		if half, err = c.at("half", roots...); err == nil {
			err = c.goOn()
		}
		if err != nil {
			return half, end, err
		}
	}
	end, err = c.at("end", roots...)
	return half, end, err
}

// grown compares the CPU time of wide's two halves.
func (l *line) grown(narrow, wide time.Duration) {
	l.CPUNarrow = float64(narrow.Microseconds()) / float64(l.N)
	l.CPUPerStep = float64(wide.Microseconds()) / float64(l.N)
	l.Growth = l.CPUPerStep / max(l.CPUNarrow, 1) // for a few steps the measured CPU time may be zero
}

// end gives the child a moment to close its engine, then kills it and all processes it
// started.
func (c *childProcess) end() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.cmd.Wait() // its exit status does not matter after its last report
	}()
	select {
	case <-done:
	case <-time.After(2 * time.Second):
	}
	_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL) // fails when all have ended, as they should
	<-done
	_ = c.pipe.Close()
}

func megabytes(b int64) float64 { return float64(b) / (1 << 20) }

// load returns the machine's load average over a minute, or 0 if it is unknown.
func load() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), " ")
	f, _ := strconv.ParseFloat(first, 64)
	return f
}

// A counter counts the syncs of traced processes.
type counter struct {
	strace string
	dir    string
}

// newCounter requires strace, and a directory that the database's user can
// write to.
func newCounter(work string) (*counter, error) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(work, "syncs-")
	if err != nil {
		return nil, err
	}
	return &counter{strace, dir}, os.Chmod(dir, 0o777)
}

func (c *counter) tracer(name string) []string {
	return []string{c.strace, "-f", "-qq", "-e", "trace=fsync,fdatasync,sync_file_range,msync", "-o", filepath.Join(c.dir, name)}
}

// count returns the number of syncs so far. A call whose log entry is split into two
// lines by another thread's call counts once.
func (c *counter) count() (n int) {
	if c == nil {
		return 0
	}
	logs, _ := filepath.Glob(filepath.Join(c.dir, "*"))
	for _, name := range logs {
		text, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		for l := range bytes.Lines(text) {
			if bytes.Contains(l, []byte("sync")) && !bytes.Contains(l, []byte("resumed>")) {
				n++
			}
		}
	}
	return n
}
