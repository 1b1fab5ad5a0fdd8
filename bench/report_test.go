// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"flag"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

var rewrite = flag.Bool("rewrite", false, "put the figures of testdata/measured.jsonl into docs/performance.md")

const (
	measured = "testdata/measured.jsonl"
	pageFile = "../docs/performance.md"
	begin    = "<!-- made by go run ./bench -report from bench/testdata/measured.jsonl; go test ./bench -run Page -rewrite -->\n"
	end      = "<!-- end -->\n"
)

// The figures in docs/performance.md are generated from the stored JSON lines.
func TestPerformancePage(t *testing.T) {
	lines, err := os.Open(measured)
	if err != nil {
		t.Fatal(err)
	}
	defer lines.Close()
	var tables, log bytes.Buffer
	if code := run(t.Context(), time.Now(), []string{"-report"}, lines, &tables, &log); code != 0 {
		t.Fatalf("bench -report ends with %d: %s", code, log.String())
	}
	raw, err := os.ReadFile(pageFile)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(raw), "\r\n", "\n")
	before, rest, ok := strings.Cut(text, begin)
	old, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the figures", pageFile)
	}
	want := "\n" + tables.String() + "\n"
	if *rewrite {
		if err := os.WriteFile(pageFile, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if old != want {
		t.Errorf("%s is not current: go test ./bench -run Page -rewrite", pageFile)
	}
	for _, s := range shapes {
		name := "`" + s.name + "`"
		if !strings.Contains(before, "| "+name+" |") {
			t.Errorf("%s does not say what %s is", pageFile, name)
		}
	}
}

// Medians replace the runs they are computed from, wherever they are in the
// file.
func TestReportPrefersMedians(t *testing.T) {
	var out bytes.Buffer
	in := `{"shape":"many","n":1000,"steps_per_s":1,"run":"1","settings":{"go":"x"}}
{"shape":"fan","n":1000,"p50_us":7000,"run":"1","settings":{"go":"x"}}
{"shape":"many","n":1000,"steps_per_s":123456,"run":"median","settings":{"go":"x"}}
`
	if err := report(strings.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| many: steps/s | 1,000 | 123,500 | ≥ 100,000 | ≥ 300,000 | met |", "| fan: 1,000 parallel steps and their join, µs | 1,000 | 7,000 | ≤ 6,000 | ≤ 2,000 | **missed** |"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no row %q in\n%s", want, out.String())
		}
	}
	if err := report(strings.NewReader(""), &out); err == nil {
		t.Error("a report of nothing was made")
	}
}

// TestPageNamesFlags: this program accepts the commands on the page.
func TestPageNamesFlags(t *testing.T) {
	text, err := os.ReadFile(pageFile)
	if err != nil {
		t.Fatal(err)
	}
	text = regexp.MustCompile("(?s)<!--.*?-->").ReplaceAll(text, nil)
	known := map[string]bool{}
	for _, s := range shapes {
		known[s.name] = true
	}
	commands := regexp.MustCompile("go run \\./bench( -[^\n`<>#]*)").FindAllStringSubmatch(string(text), -1)
	if len(commands) < 5 {
		t.Errorf("%s names %d commands", pageFile, len(commands))
	}
	for _, m := range commands {
		var o options
		if err := o.parse(strings.Fields(m[1]), io.Discard); err != nil {
			t.Errorf("%s says `go run ./bench%s`: %v", pageFile, m[1], err)
		}
		for name := range strings.SplitSeq(o.shapes, ",") {
			if !known[name] {
				t.Errorf("%s says `go run ./bench%s`: there is no shape %s", pageFile, m[1], name)
			}
		}
	}
}
