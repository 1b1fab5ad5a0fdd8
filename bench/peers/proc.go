// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// clockTick is the unit of CPU time in /proc/PID/stat on Linux.
const clockTick = 10 * time.Millisecond

// A process is a process as described by /proc.
type process struct {
	parent int
	ended  bool          // all of its threads have ended; its parent has not waited for it yet
	cpu    time.Duration // its own and that of its ended children
}

// processes reads all processes; those that end in the meantime are omitted.
func processes() (map[int]process, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err == nil && len(stats) == 0 {
		err = errors.New("/proc lists no processes: CPU and memory are measured on Linux only")
	}
	if err != nil {
		return nil, err
	}
	all := map[int]process{}
	for _, name := range stats {
		pid, _ := strconv.Atoi(strings.Split(name, "/")[2])
		text, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		// The command's name is in parentheses and may contain any characters.
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(fields) < 18 {
			continue
		}
		var p process
		p.ended = fields[0] == "Z" && fields[17] == "1"
		p.parent, _ = strconv.Atoi(fields[1])
		for _, f := range fields[11:15] {
			ticks, _ := strconv.ParseInt(f, 10, 64)
			p.cpu += time.Duration(ticks) * clockTick
		}
		all[pid] = p
	}
	return all, nil
}

// tree returns the roots and their descendants.
func tree(all map[int]process, roots []int) (pids []int) {
	below := map[int][]int{}
	for pid, p := range all {
		below[p.parent] = append(below[p.parent], pid)
	}
	seen := map[int]bool{}
	for next := roots; len(next) > 0; {
		pid := next[0]
		next = append(next[1:len(next):len(next)], below[pid]...)
		if _, ok := all[pid]; ok && !seen[pid] {
			seen[pid] = true
			pids = append(pids, pid)
		}
	}
	return pids
}

// killTree kills the root and its descendants at once, as a crash would, and returns when
// they have ended.
func killTree(ctx context.Context, root int) error {
	all, err := processes()
	if err != nil {
		return err
	}
	doomed := tree(all, []int{root})
	for _, pid := range doomed {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return eventually(ctx, func() error {
		all, err := processes()
		for _, pid := range doomed {
			if p, ok := all[pid]; ok && !p.ended {
				return fmt.Errorf("process %d has not ended", pid)
			}
		}
		return err
	})
}

// usage returns the CPU time that the trees of the roots have used so far, and the memory
// they use now: the proportional set size, so that shared memory counts once.
func usage(roots ...int) (cpu time.Duration, bytesHeld int64, err error) {
	all, err := processes()
	if err != nil {
		return 0, 0, err
	}
	for _, pid := range tree(all, roots) {
		cpu += all[pid].cpu
		bytesHeld += proportional(pid)
	}
	return cpu, bytesHeld, nil
}

// proportional set size of a process; 0 if it has ended.
func proportional(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, "Pss:"); ok {
			kb, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 10, 64)
			return kb << 10
		}
	}
	return 0
}

// A peak records the maximum memory of trees of processes.
type peak struct {
	stop chan struct{}
	done sync.WaitGroup
	most int64
}

// sampling is infrequent, because reading the map of a large process stops it
// for milliseconds.
const sampling = 400 * time.Millisecond

func watch(roots ...int) *peak {
	p := &peak{stop: make(chan struct{})}
	p.done.Go(func() {
		tick := time.NewTicker(sampling)
		defer tick.Stop()
		for {
			select {
			case <-p.stop:
				return
			case <-tick.C:
				if _, held, err := usage(roots...); err == nil {
					p.most = max(p.most, held)
				}
			}
		}
	})
	return p
}

// end returns the maximum.
func (p *peak) end() int64 {
	close(p.stop)
	p.done.Wait()
	return p.most
}

// lastLines of a program's output, for an error; long ones are cut.
func lastLines(text []byte, n int) string {
	const most = 300
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	lines = lines[max(0, len(lines)-n):]
	for i, l := range lines {
		if len(l) > most {
			lines[i] = l[:most] + " …"
		}
	}
	return strings.Join(lines, "\n")
}

// freePorts finds unused ports below the ephemeral range, so that no other process gets
// them in the meantime. Temporal stores ports in a column with the maximum 32767.
func freePorts(n int) ([]int, error) {
	const low, high = 20_000, 32_000
	var ports []int
	for tries := 0; len(ports) < n; tries++ {
		if tries > 1000 {
			return nil, fmt.Errorf("no %d free ports between %d and %d", n, low, high)
		}
		port := low + rand.IntN(high-low)
		l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		defer l.Close()
		ports = append(ports, port)
	}
	return ports, nil
}

// keptPorts returns free ports at the first call for a directory, and the same ports
// afterwards, because clients look for a restarted server at its old address.
func keptPorts(dir string, n int) (ports []int, err error) {
	name := filepath.Join(dir, "ports.json")
	if text, err := os.ReadFile(name); err == nil {
		return ports, json.Unmarshal(text, &ports)
	}
	if ports, err = freePorts(n); err != nil {
		return nil, err
	}
	text, err := json.Marshal(ports)
	if err != nil {
		return nil, err
	}
	return ports, os.WriteFile(name, text, 0o600)
}
