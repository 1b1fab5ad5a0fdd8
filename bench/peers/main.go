// SPDX-License-Identifier: Apache-2.0

// Command peers measures other durable engines with the shapes of Roux's own
// benchmark, on this machine, in one interleaved run, and prints one table:
//
//	go run . -runs 3
//	go run . -runs 1 -peers roux,dbos-postgres -shapes chain,many
//	go run . -check -report results/FILE.jsonl
//	go run . -runs 3 -shapes ingress
//
// Each engine runs each shape in a separate process, with the settings that its own
// documentation recommends; the parent process measures CPU and memory of that process,
// of its server and of its database from /proc. The command decides nothing about Roux
// and imports none of it: Roux is measured through its own bench program. It is a
// separate module, so that the other engines are not dependencies of Roux.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options are the flags of the command line.
type options struct {
	runs    int
	peers   []string
	shapes  []string
	sizes   map[string]int
	dir     string
	out     string
	timeout time.Duration
	within  time.Duration
	press   time.Duration
	check   bool
	syncs   bool
	report  string
	root    string
}

// roles are the main functions of the processes that this command starts.
var roles = map[string]func([]string) error{childCommand: child, clientCommand: clientRole}

func main() {
	runtime.MemProfileRate = 0 // the memory of an unused profile must not be measured
	if len(os.Args) > 1 && roles[os.Args[1]] != nil {
		if err := roles[os.Args[1]](os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "peers:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		stop()
		os.Exit(1)
	}
}

// command parses the flags, measures, and prints the table.
func command(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("peers", flag.ContinueOnError)
	var o options
	var peerList, shapeList, sizeList string
	flags.IntVar(&o.runs, "runs", 3, "how often each peer meets each shape; the table shows medians")
	flags.StringVar(&peerList, "peers", "", "only these, comma-separated: "+strings.Join(peerNames(), ", "))
	flags.StringVar(&shapeList, "shapes", strings.Join(shapeNames, ","), "only these shapes; also "+ingressShape)
	flags.StringVar(&sizeList, "n", "", "other sizes for all peers, such as chain=50,many=200 (runs), idle=1000")
	flags.StringVar(&o.dir, "dir", "", "where the databases are put while they are measured; a disk, not memory (default: the system's temporary directory)")
	flags.StringVar(&o.out, "out", "results", "directory of the raw JSON lines; empty keeps none")
	flags.DurationVar(&o.timeout, "timeout", 2*time.Minute, "how long one peer may take for one shape")
	flags.DurationVar(&o.within, "within", 29*time.Minute, "begin no further run that would end later than this, and nothing at all after it")
	flags.DurationVar(&o.press, "press", 10*time.Second, "how long the client of ingress starts executions")
	flags.BoolVar(&o.check, "check", false, "fail when Roux misses a bar against the peers of this run")
	flags.BoolVar(&o.syncs, "syncs", true, "count the syncs of a chain once a peer, with strace and the database's own counter")
	flags.StringVar(&o.report, "report", "", "measure nothing: print the table of this file of raw JSON lines")
	flags.StringVar(&o.root, "root", "../..", "the checkout of Roux whose bench program is measured")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected %q: peers takes flags only", flags.Arg(0))
	}
	var err error
	if o.peers, err = pick("peer", peerList, peerNames()); err != nil {
		return err
	}
	if o.shapes, err = pick("shape", shapeList, allShapes()); err != nil {
		return err
	}
	if o.sizes, err = parseSizes(sizeList); err != nil {
		return err
	}
	if o.runs < 1 {
		return fmt.Errorf("-runs %d: want 1 or more", o.runs)
	}
	if o.report != "" {
		return reportOf(o, os.Stdout)
	}
	return measure(ctx, o)
}

// pick checks a comma-separated list against the known names; an empty list
// means all.
func pick(what, list string, all []string) ([]string, error) {
	if list == "" {
		return all, nil
	}
	chosen := strings.Split(list, ",")
	for _, name := range chosen {
		if !slices.Contains(all, name) {
			return nil, fmt.Errorf("no %s %q: there are %s", what, name, strings.Join(all, ", "))
		}
	}
	return chosen, nil
}

func parseSizes(list string) (map[string]int, error) {
	sizes := map[string]int{}
	if list == "" {
		return sizes, nil
	}
	for part := range strings.SplitSeq(list, ",") {
		name, value, _ := strings.Cut(part, "=")
		n := 0
		if _, err := fmt.Sscanf(value, "%d", &n); err != nil || n < 1 || !slices.Contains(allShapes(), name) {
			return nil, fmt.Errorf("-n %q: want a shape and a number, such as chain=50", part)
		}
		sizes[name] = n
	}
	return sizes, nil
}
