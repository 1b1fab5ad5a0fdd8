// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
)

// play runs the scenarios of a row as tests.
func play(t *testing.T, row string) {
	t.Helper()
	b := benchOf(t)
	played := 0
	for _, sc := range scenarios {
		name, ok := strings.CutPrefix(sc.name, row+"_")
		if !ok {
			continue
		}
		played++
		t.Run(name, func(t *testing.T) {
			if sc.long && os.Getenv("ROUX_LONG") == "" {
				t.Skip("takes half a minute; ROUX_LONG=1 plays it, and so does `go run ./sim/kill -faults`")
			}
			sc.play(b.newScenarioRun(t, sc.name))
		})
	}
	if played == 0 {
		t.Errorf("no scene of %s", row)
	}
}

// F31: a full disk, by failing writes and by a real small file system.
func TestF31_DiskFull(t *testing.T) { play(t, "F31") }

// F32: syncs that fail, are slow, or never return.
func TestF32_DiskFails(t *testing.T) { play(t, "F32") }

// F34: too few descriptors for the work, for the store and for the socket, and too few threads.
func TestF34_TooFew(t *testing.T) { play(t, "F34") }

// F35, F07: processes that are stopped and continued.
func TestF35_StoppedProcess(t *testing.T) { play(t, "F35") }
func TestF07_StoppedProcess(t *testing.T) { play(t, "F07") }

// F45: an orderly stop.
func TestF45_Drain(t *testing.T) { play(t, "F45") }

// TestPageNamesEveryScenario: docs/disasters.md lists every scenario, and the flags in
// its commands exist.
func TestPageNamesEveryScenario(t *testing.T) {
	text, err := os.ReadFile("../../docs/disasters.md")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, sc := range scenarios {
		known[sc.name] = true
		if !strings.Contains(string(text), "`"+sc.name+"`") {
			t.Errorf("docs/disasters.md does not name %s", sc.name)
		}
	}
	for _, name := range regexp.MustCompile("`(F[0-9]{2}_[A-Za-z]+)`").FindAllStringSubmatch(string(text), -1) {
		if !known[name[1]] {
			t.Errorf("docs/disasters.md names %s, which nothing plays", name[1])
		}
	}
	set := flag.NewFlagSet("kill", flag.ContinueOnError)
	new(options).declare(set)
	for _, name := range regexp.MustCompile("(?:\\s|`)-([a-z]+)").FindAllStringSubmatch(string(text), -1) {
		if name[1] != "tags" && set.Lookup(name[1]) == nil {
			t.Errorf("docs/disasters.md names the flag -%s, which there is not", name[1])
		}
	}
}
