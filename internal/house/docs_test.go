// SPDX-License-Identifier: Apache-2.0

package house_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the generated pages")

// page compares a generated page with the file, or rewrites the file.
func page(t *testing.T, path, want string) {
	t.Helper()
	name := filepath.Join(root, path)
	if *rewrite {
		if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if strings.ReplaceAll(string(got), "\r\n", "\n") != want {
		t.Errorf("%s is not current: run `make rewrite` and read the diff", path)
	}
}

// TestErrorPages: docs/errors.md and docs/exit-codes.md are generated from
// fault's table (X124).
func TestErrorPages(t *testing.T) {
	page(t, "docs/errors.md", errorsPage())
	page(t, "docs/exit-codes.md", exitPage())
}

func errorsPage() string {
	var b strings.Builder
	b.WriteString("# Errors\n\nGenerated from the table in package `fault` by `make rewrite`; do not edit.\n\n" +
		"A code never changes its meaning. *Retryable* is whether another try can succeed; a retry policy\n" +
		"without a list of errors retries those codes. The exit code is that of the command line\n" +
		"([all of them](exit-codes.md)).\n\n" +
		"| code | HTTP | cause | retryable | exit |\n| --- | --- | --- | --- | --- |\n")
	for _, row := range fault.All() {
		retry := "no"
		if row.Retryable {
			retry = "yes"
		}
		fmt.Fprintf(&b, "| [`%s`](#%s) | %d | `%s` | %s | %d |\n", row.Code, strings.ToLower(string(row.Code)), row.HTTP, row.Cause, retry, row.Exit)
	}
	for _, row := range fault.All() {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\nWhat to do: %s\n", row.Code, row.Meaning, row.Remedy)
		var also []string
		if row.Legacy != "" {
			also = append(also, "`"+row.Legacy+"`")
		}
		for _, a := range row.Aliases {
			also = append(also, "`"+a+"`")
		}
		if len(also) > 0 {
			fmt.Fprintf(&b, "\nAlso written %s.\n", strings.Join(also, ", "))
		}
	}
	return b.String()
}

// exits has the meaning of each exit code; the error codes that lead to it are listed
// from fault's table.
var exits = []struct {
	code int
	text string
}{
	{fault.ExitOK, "Done; a run completed."},
	{fault.ExitFailed, "The run failed, or a check found a difference."},
	{fault.ExitUsage, "The command, a flag or an input was not understood."},
	{fault.ExitDefinition, "The recipe is not valid, or its run reached one of its `limits` before an attempt was dispatched and before a step completed."},
	{fault.ExitNotFound, "A file, run or step does not exist."},
	{fault.ExitForbidden, "Not allowed, for example a data directory that cannot be written."},
	{fault.ExitCredits, "Credits or a quota do not suffice."},
	{fault.ExitConflict, "A conflict, for example another process holds the data directory."},
	{fault.ExitTimeout, "Waited as long as `--timeout` allows; nothing recorded is lost, and `roux resume` continues the run."},
	{fault.ExitUnreachable, "The process that holds the data directory does not answer."},
	{fault.ExitCancelled, "The run was cancelled."},
	{fault.ExitAssertion, "The run did not end as expected."},
	{fault.ExitInternal, "Something is wrong in Roux or under it (disk, store)."},
	{fault.ExitInterrupted, "Interrupted by Ctrl-C or a signal; the run can be resumed."},
}

func exitPage() string {
	var b strings.Builder
	b.WriteString("# Exit codes\n\nGenerated from the table in package `fault` by `make rewrite`; do not edit.\n\n" +
		"| exit | means | codes |\n| --- | --- | --- |\n")
	for _, e := range exits {
		var codes []string
		for _, row := range fault.All() {
			if row.Exit == e.code {
				codes = append(codes, fmt.Sprintf("[`%s`](errors.md#%s)", row.Code, strings.ToLower(string(row.Code))))
			}
		}
		fmt.Fprintf(&b, "| %d | %s | %s |\n", e.code, e.text, strings.Join(codes, " "))
	}
	return b.String()
}

// TestEveryExitCodeIsExplained: every exit code in fault's table is explained
// on the page.
func TestEveryExitCodeIsExplained(t *testing.T) {
	known := map[int]bool{}
	for _, e := range exits {
		known[e.code] = true
	}
	for _, row := range fault.All() {
		if !known[row.Exit] {
			t.Errorf("%s exits %d, which docs/exit-codes.md does not explain", row.Code, row.Exit)
		}
		if row.Meaning == "" || row.Remedy == "" {
			t.Errorf("%s has no meaning or no remedy", row.Code)
		}
	}
}

var (
	requirement = regexp.MustCompile(`(?m)^\s*(?:require )?([a-z0-9.-]+\.[a-z]+/\S+|[a-z0-9.-]+\.[a-z]+\.[a-z]+/\S+) (v\S+)( // indirect)?$`)
	tableRow    = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (v[^ ]+) \\|")
)

// TestDependencyPage: our imports, the direct requirements of go.mod and the rows of
// docs/dependencies.md are the same modules, with the same versions.
func TestDependencyPage(t *testing.T) {
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	version, direct := map[string]string{}, map[string]bool{}
	for _, m := range requirement.FindAllStringSubmatch(string(mod), -1) {
		version[m[1]] = m[2]
		direct[m[1]] = m[3] == ""
	}
	if len(version) < 20 {
		t.Fatalf("read %d requirements of go.mod", len(version))
	}
	imported := map[string]string{}
	for _, f := range load(t) {
		for _, imp := range f.imports {
			lib := ""
			for m := range version {
				if (imp == m || strings.HasPrefix(imp, m+"/")) && len(m) > len(lib) {
					lib = m
				}
			}
			if lib != "" {
				imported[lib] = f.path
			}
		}
	}
	text, err := os.ReadFile(filepath.Join(root, "docs/dependencies.md"))
	if err != nil {
		t.Fatal(err)
	}
	explained := map[string]string{}
	for _, m := range tableRow.FindAllStringSubmatch(string(text), -1) {
		explained[m[1]] = m[2]
	}
	for _, lib := range slices.Sorted(maps.Keys(version)) {
		_, used := imported[lib]
		if used && explained[lib] == "" {
			t.Errorf("%s is imported by %s and has no row in docs/dependencies.md", lib, imported[lib])
		}
		if used && explained[lib] != "" && explained[lib] != version[lib] {
			t.Errorf("%s: docs/dependencies.md says %s, go.mod says %s", lib, explained[lib], version[lib])
		}
		if used != direct[lib] {
			t.Errorf("%s: imported %t, direct in go.mod %t: run go mod tidy", lib, used, direct[lib])
		}
	}
	for _, lib := range slices.Sorted(maps.Keys(explained)) {
		if imported[lib] == "" {
			t.Errorf("docs/dependencies.md explains %s, which nothing imports", lib)
		}
	}
}

var (
	named  = regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9_]+)`")
	linked = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
)

// TestPagesNameWhatExists: every test that a page names exists, and so does the target
// of every link between pages.
func TestPagesNameWhatExists(t *testing.T) {
	tests := map[string]bool{}
	for _, f := range load(t) {
		for _, d := range f.syntax.Decls {
			if name, ok := testName(d); ok {
				tests[name] = true
			}
		}
	}
	err := walk(func(path string) error {
		if filepath.Ext(path) != ".md" {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			return err
		}
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			if !tests[m[1]] {
				t.Errorf("%s names %s, which does not exist", path, m[1])
			}
		}
		for _, m := range linked.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join(root, filepath.Dir(path), m[1])); err != nil {
				t.Errorf("%s links to %s: %v", path, m[1], err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestDecisions: records are numbered without gaps and have the form described in
// docs/decisions/README.md.
func TestDecisions(t *testing.T) {
	names, err := filepath.Glob(filepath.Join(root, "docs/decisions/[0-9]*.md"))
	if err != nil {
		t.Fatal(err)
	}
	if len(names) == 0 {
		t.Fatal("no records")
	}
	for i, name := range names {
		base := filepath.Base(name)
		if want := fmt.Sprintf("%04d-", i+1); !strings.HasPrefix(base, want) {
			t.Errorf("%s: want a name that begins with %s", base, want)
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"# " + base[:4] + " ", "\n## Why\n", "\n## What\n", "\n## Consequences\n"} {
			if !strings.Contains("\n"+string(text), part) {
				t.Errorf("%s has no %q", base, strings.TrimSpace(part))
			}
		}
	}
}
