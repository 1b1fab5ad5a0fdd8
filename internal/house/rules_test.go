// SPDX-License-Identifier: Apache-2.0

package house_test

import (
	"strings"
	"testing"
)

// TestRulesCatch violates each rule on purpose, because a rule that cannot fail checks
// nothing.
func TestRulesCatch(t *testing.T) {
	file := func(path, body string) []*source {
		t.Helper()
		f, err := parse(path, []byte(spdx+"\n"+body))
		if err != nil {
			t.Fatal(err)
		}
		return []*source{f}
	}
	for _, tt := range []struct {
		name string
		got  []string
		want string
	}{
		{"an import that climbs", floorProblems(file("internal/plan/x.go",
			"package plan\n\nimport _ \""+module+"/internal/machine\"\n")), "only lower floors"},
		{"an import on the same floor", floorProblems(file("internal/blob/x.go",
			"package blob\n\nimport _ \""+module+"/internal/media\"\n")), "only lower floors"},
		{"a package without a floor", floorProblems(file("internal/util/x.go",
			"package util\n")), "no floor"},
		{"an import of something beside", floorProblems(file("internal/cli/x.go",
			"package cli\n\nimport _ \""+module+"/internal/house\"\n")), "on no floor"},
		{"the clock in a pure package", pureProblems(file("internal/machine/x.go",
			"package machine\n\nimport \"time\"\n\nvar at = time.Now()\n")), "time.Now"},
		{"dice in a pure package", pureProblems(file("internal/machine/x.go",
			"package machine\n\nimport _ \"math/rand/v2\"\n")), "math/rand/v2"},
		{"the disk in a pure package", pureProblems(file("internal/expr/x.go",
			"package expr\n\nimport _ \"os\"\n")), "imports os"},
		{"the network in a pure package", pureProblems(file("internal/compile/x.go",
			"package compile\n\nimport _ \"net/http\"\n")), "net/http"},
		{"the store in the core (X75)", pureProblems(file("internal/machine/x.go",
			"package machine\n\nimport _ \""+module+"/internal/store\"\n")), "done by its caller"},
		{"a database in the core (X75)", pureProblems(file("internal/machine/x.go",
			"package machine\n\nimport _ \"database/sql\"\n")), "database/sql"},
		{"a goroutine in a pure package", pureProblems(file("internal/plan/x.go",
			"package plan\n\nfunc f() { go f() }\n")), "goroutine"},
		{"a deadline in a pure package", pureProblems(file("internal/expr/x.go",
			"package expr\n\nimport \"context\"\n\nvar f = context.WithTimeout\n")), "context.WithTimeout"},
		{"a library outside its wrapper", wrapperProblems(file("internal/engine/x.go",
			"package engine\n\nimport _ \"cel.dev/cel-go/cel\"\n")), "belongs to internal/expr"},
		{"a new library", wrapperProblems(file("internal/engine/x.go",
			"package engine\n\nimport _ \"example.com/lib\"\n")), "a new library"},
		{"a connection past the guard (I19)", dialProblems(file("internal/builtin/x.go",
			"package builtin\n\nimport \"net/http\"\n\nvar c = http.DefaultClient\n")), "past the guard"},
		{"no package comment", sourceProblems(file("internal/engine/x.go", "package engine\n")), "no comment"},
		{"a package comment of another form", sourceProblems(file("internal/engine/x.go",
			"// This package runs.\npackage engine\n")), "must begin with"},
		{"a long file", sourceProblems(file("internal/engine/x.go",
			"// Package engine runs.\npackage engine\n"+strings.Repeat("\n", maxLines))), "lines; over"},
		{"a refused name", nameProblems(file("internal/worker/x.go", "package worker\n\ntype Crew struct{}\n")), "the field says Executor"},
		{"a long function", sizeProblems(file("internal/engine/x.go",
			"package engine\n\nfunc f() {"+strings.Repeat("\n", maxFunctionLines)+"}\n"), nil), "f has 101 lines"},
		{"a long package", sizeProblems(file("internal/engine/x.go",
			"package engine\n"+strings.Repeat("\n", maxPackageLines)), nil), "lines in 1 files"},
		{"a package that has become smaller", sizeProblems(file("internal/engine/x.go", "package engine\n"),
			map[string]string{"internal/engine": "a reason"}), "no longer large"},
		{"an unfinished word", wordProblems("x.go", "// TO"+"DO: later"), "TO" + "DO"},
		{"a promise nobody keeps", wordProblems("x.md", "Each effect runs Exactly"+"-once."), "xactly-once"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if len(tt.got) == 0 || !strings.Contains(tt.got[0], tt.want) {
				t.Errorf("got %q, want a problem with %q", tt.got, tt.want)
			}
		})
	}
	promise := "exact" + "ly once"
	if got := wordProblems("x.md", "Never write “"+promise+"”."); len(got) != 0 {
		t.Errorf("a quoted rule may name what it forbids, got %q", got)
	}
	if got := floorProblems(file("internal/store/sqlite/x.go",
		"package sqlite\n\nimport (\n_ \""+module+"/internal/store\"\n_ \""+module+"/fault\"\n)\n")); len(got) != 0 {
		t.Errorf("a child may import its parent and fault, got %q", got)
	}
	if got := sourceProblems([]*source{{path: "x.go", pkg: ".", test: true, text: []byte("package x\n")}}); len(got) != 1 {
		t.Errorf("a file without its SPDX line: got %q", got)
	}
}

// TestForeignModule: the import rules do not apply to a separate module, the rules for
// the form of sources do.
func TestForeignModule(t *testing.T) {
	var foreign []*source
	for _, f := range load(t) {
		if f.foreign {
			foreign = append(foreign, f)
		}
		for _, imp := range f.imports {
			if !f.foreign && strings.HasPrefix(imp, module+"/bench/peers") {
				t.Errorf("%s imports the module that measures other engines", f.path)
			}
		}
	}
	if len(foreign) == 0 || foreign[0].pkg != "bench/peers" {
		t.Fatalf("bench/peers is not seen as a module of its own: %d files", len(foreign))
	}
	f, err := parse("bench/peers/x.go", []byte("package main\n\nimport _ \"example.com/lib\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := wrapperProblems([]*source{f}); len(got) != 1 {
		t.Errorf("a library in our module: got %q", got)
	}
	f.foreign = true
	if got := append(wrapperProblems([]*source{f}), floorProblems([]*source{f})...); len(got) != 0 {
		t.Errorf("a library of another module: got %q", got)
	}
	if got := sourceProblems([]*source{f}); len(got) == 0 {
		t.Error("a file of another module without SPDX line and comment passes")
	}
}
