// SPDX-License-Identifier: Apache-2.0

// Package house_test contains the architecture tests: which package may import
// which, what the pure packages may use, how sources look, and that the
// generated pages are current. It decides nothing about behaviour and has no
// code of its own: every rule reads the sources as text or syntax.
package house_test

import (
	"fmt"
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// floors is the floor plan of docs/architecture.md: a package may import only packages
// on lower floors, so that components have clear boundaries (X73). A parent and its children on one floor are a group and may import
// each other. Every addition needs a record in docs/decisions.
var floors = []struct {
	name     string
	packages []string
}{
	{"fault", []string{"fault"}},
	{"leaves", []string{"internal/failpoint", "internal/cputime", "internal/datadir", "internal/wire", "internal/heap", "internal/list", "internal/inbox", "internal/clock", "internal/spell", "internal/linediff", "internal/pattern", "internal/sse", "internal/confine"}},
	{"leaves, above", []string{"internal/watchdog", "internal/fuzztest"}},
	{"0", []string{"action", "internal/mutation", "internal/schedule"}},
	{"0, what is embedded", []string{"examples"}},
	{"1, JSON", []string{"internal/jsonx"}},
	{"1, guarded wrappers", []string{"internal/yamlx", "internal/redact"}},
	{"1", []string{"internal/plan", "internal/expr", "internal/jsonschema", "internal/layout", "internal/ledger"}},
	{"1", []string{"internal/catalogue", "internal/sanitize"}},
	{"2", []string{"internal/compile", "internal/compile/approvals", "internal/compile/dag", "internal/compile/dialect", "internal/compile/dialecttest", "internal/compile/estimate", "internal/compile/expressions", "internal/compile/extend", "internal/compile/flow", "internal/compile/form", "internal/compile/lint", "internal/compile/pipeline", "internal/compile/recipe", "internal/compile/refactor", "internal/compile/repair", "internal/compile/sample", "internal/compile/texts", "internal/importer/syntax", "internal/journal"}},
	{"2, definitions of other systems", []string{"internal/importer"}},
	{"3, what decides", []string{"internal/machine"}},
	{"3, what readers see", []string{"internal/view"}},
	{"3, what a service shows", []string{"internal/resource"}},
	{"3", []string{
		"internal/picture", "internal/reference",
		"internal/store", "internal/store/format", "internal/store/memory", "internal/store/sqlite", "internal/store/sqlite/catalog", "internal/store/sqlite/changes", "internal/store/sqlite/check", "internal/store/sqlite/conn", "internal/store/sqlite/directory", "internal/store/sqlite/marks", "internal/store/sqlite/records", "internal/store/sqlite/snapshot", "internal/store/sqlite/wal", "internal/store/storetest",
		"internal/blob", "internal/egress", "internal/signature", "internal/media", "internal/media/pdf", "internal/media/pdf/eastasian", "internal/media/pdftest",
	}},
	{"3, what is hidden", []string{"internal/masks"}},
	{"3, a run in a file", []string{"internal/bundle"}},
	{"3, a terminal", []string{"internal/term"}},
	{"3, values that fit schemas", []string{"internal/simulate/answer", "internal/simulate/timetable"}},
	{"3, files that a user names", []string{"internal/userfile"}},
	{"3, recipes from outside", []string{"internal/sources"}},
	{"4, directories of runs", []string{"internal/workspace"}},
	{"4, secrets of accounts", []string{"internal/secrets"}},
	{"4, services behind actions", []string{"internal/provider", "internal/provider/emulate", "internal/provider/jobapi", "internal/provider/prompt", "internal/moderation"}},
	{"4", []string{"internal/builtin", "internal/worker", "internal/slots", "internal/purse", "internal/admission", "internal/program", "internal/crashes", "internal/feed", "internal/access", "internal/retention", "internal/reconcile", "internal/loops", "internal/jobs", "internal/alarms", "internal/handover"}},
	{"4, above", []string{"internal/resultcache", "internal/reads", "internal/limits", "internal/terms", "internal/command", "internal/lease", "internal/approval", "internal/lens"}},
	{"5", []string{"internal/engine", "internal/registry", "action/actiontest"}},
	{"5, accounts of a server", []string{"internal/account"}},
	{"5, webhooks out", []string{"internal/webhook"}},
	{"5, one thing done to many runs", []string{"internal/bulk"}},
	{"5, runs of stored requests", []string{"internal/starts"}},
	{"5, schedules", []string{"internal/scheduler"}},
	{"5, webhooks in", []string{"internal/inbound"}},
	{"6", []string{"internal/telemetry", "internal/telemetry/otlp", "internal/simulate", "internal/node"}},
	{"6, copies of a data directory", []string{"internal/backup"}},
	{"6, the library", []string{"."}},
	{"7, settings", []string{"internal/config"}},
	{"7, what operations over HTTP have in common", []string{"internal/rest", "internal/docpage"}},
	{"7, what starts runs by itself, over HTTP", []string{"internal/triggers"}},
	{"7, what remote workers ask, over HTTP", []string{"internal/workers"}},
	{"7, workflows of nodes, over HTTP", []string{"internal/workflows"}},
	{"7, prompt templates, over HTTP", []string{"internal/lenses"}},
	{"7, what recipes use, over HTTP", []string{"internal/dependencies"}},
	{"7, what people are asked, over HTTP", []string{"internal/approvals"}},
	{"7", []string{"internal/api", "client", "internal/ui"}},
	{"7, the server", []string{"internal/service"}},
	{"7, the server in a Go program", []string{"api"}},
	{"7, the socket of a data directory", []string{"internal/local"}},
	{"7, a server, or who holds a data directory, as a data directory", []string{"internal/remote"}},
	{"7, checks and repairs", []string{"internal/doctor"}},
	{"7, checks of remote workers", []string{"internal/conform"}},
	{"8, for editors", []string{"internal/lsp"}},
	{"8, runs without effects", []string{"internal/recipetest"}},
	{"8", []string{"internal/cli"}},
	{"8, the binary", []string{"cmd/roux"}},
}

// beside are packages outside the floors, with their subpackages: nothing may import
// them. The package examples itself has a floor, because its files are embedded.
var beside = []string{"internal/house", "bench", "sim", "supply", "examples", "docs"}

// groups name the parents whose packages may import each other.
var groups = []string{"internal/compile", "internal/media", "internal/provider", "internal/store", "internal/telemetry"}

// pure are the deterministic packages: no clock, randomness, disk, network or
// goroutine.
var pure = []string{
	"fault", "internal/mutation", "internal/wire", "internal/heap", "internal/list", "internal/spell", "internal/linediff", "internal/pattern", "internal/jsonx", "internal/yamlx", "internal/redact", "internal/plan", "internal/expr", "internal/jsonschema",
	"internal/layout", "internal/picture", "internal/compile", "internal/compile/approvals", "internal/compile/dag", "internal/compile/dialect", "internal/compile/estimate", "internal/compile/expressions", "internal/compile/extend", "internal/compile/flow", "internal/compile/form", "internal/compile/lint", "internal/compile/pipeline", "internal/compile/recipe", "internal/compile/refactor", "internal/compile/repair", "internal/compile/sample", "internal/compile/texts", "internal/journal", "internal/machine", "internal/view", "internal/resource", "internal/ledger", "internal/catalogue", "internal/sanitize",
	"internal/store/format", "internal/schedule",
}

// impureImports may not appear in a pure package; a trailing slash means all below.
var impureImports = []string{
	"os", "os/", "net", "net/", "math/rand", "math/rand/", "crypto/rand", "io/fs", "io/ioutil", "syscall",
	"runtime/", "log", "log/", "plugin", "testing", "testing/", "embed", "path/filepath", "unsafe",
	"database/", "hash/maphash", "expvar",
}

// impureNames are functions of packages that are otherwise allowed.
var impureNames = []string{
	"time.Now", "time.Since", "time.Until", "time.Sleep", "time.After", "time.AfterFunc", "time.Tick",
	"time.NewTimer", "time.NewTicker", "context.WithTimeout", "context.WithDeadline", "fmt.Print", "fmt.Println", "fmt.Printf",
}

// wrappers has the packages that may import a library outside tests. A library that
// handles untrusted input has as few as possible, which enforce its limits.
var wrappers = map[string][]string{
	"cel.dev/cel-go": {"internal/expr"},
	"github.com/santhosh-tekuri/jsonschema/v6":                 {"internal/jsonschema"},
	"go.yaml.in/yaml/v4":                                       {"internal/yamlx"},
	"github.com/go-json-experiment/json":                       {"internal/jsonx"},
	"modernc.org/sqlite":                                       {"internal/store/sqlite", "internal/store/sqlite/conn"},
	"github.com/pressly/goose/v3":                              {"internal/store/sqlite"},
	"github.com/pdfcpu/pdfcpu":                                 {"internal/media/pdf", "internal/media/pdftest"},
	"github.com/gabriel-vasile/mimetype":                       {"internal/blob", "internal/media"},
	"github.com/clipperhouse/uax29/v2":                         {"internal/builtin"},
	"github.com/JohannesKaufmann/html-to-markdown/v2":          {"internal/media"},
	"github.com/yuin/goldmark":                                 {"internal/media"},
	"golang.org/x/net":                                         {"internal/media"},
	"golang.org/x/image":                                       {"internal/media"},
	"golang.org/x/sync":                                        {"internal/program"},
	"golang.org/x/text":                                        {"internal/media/pdf", "internal/media/pdf/eastasian", "internal/moderation"},
	"github.com/gofrs/uuid/v5":                                 {"internal/expr"},
	"github.com/ncruces/go-strftime":                           {"internal/expr"},
	"code.dny.dev/ssrf":                                        {"internal/egress"},
	"github.com/anthropics/anthropic-sdk-go":                   {"internal/provider"},
	"github.com/sashabaranov/go-openai":                        {"internal/provider"},
	"github.com/spf13/cobra":                                   {"internal/cli"},
	"github.com/spf13/pflag":                                   {"internal/cli"},
	"charm.land/lipgloss/v2":                                   {"internal/term"},
	"golang.org/x/term":                                        {"internal/term"},
	"golang.org/x/sys":                                         {"internal/store/sqlite/directory", "internal/confine"},
	"github.com/klauspost/compress":                            {"internal/store/format"},
	"github.com/prometheus/client_golang":                      {"internal/telemetry"},
	"go.opentelemetry.io/otel":                                 {"internal/telemetry"},
	"go.opentelemetry.io/otel/trace":                           {"internal/telemetry"},
	"go.opentelemetry.io/otel/sdk":                             {"internal/telemetry", "internal/telemetry/otlp"},
	"go.opentelemetry.io/proto/otlp":                           {"internal/telemetry/otlp"},
	"google.golang.org/protobuf":                               {"internal/telemetry/otlp"},
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace":        {"internal/telemetry/otlp"},
	"pgregory.net/rapid":                                       {"internal/store/storetest"},
	"github.com/google/go-cmp":                                 {"internal/store/storetest"},
	"github.com/tink-crypto/tink-go/v2":                        {"internal/secrets"},
	"github.com/danielgtaylor/huma/v2":                         {"internal/api", "internal/rest"},
	"golang.org/x/time":                                        {"internal/rest", "internal/inbound"},
	"github.com/netresearch/go-cron":                           {"internal/schedule"},
	"github.com/standard-webhooks/standard-webhooks/libraries": {"internal/webhook", "internal/signature"},
	"github.com/coder/websocket":                               {"internal/api", "sim/kill"},
}

func TestFloorPlan(t *testing.T) {
	for _, problem := range floorProblems(load(t)) {
		t.Error(problem)
	}
}

func floorProblems(files []*source) (problems []string) {
	level := map[string]int{}
	for i, f := range floors {
		for _, p := range f.packages {
			level[p] = i
		}
	}
	for _, f := range files {
		if f.test || f.foreign {
			continue
		}
		mine, known := level[f.pkg]
		if !known && !slices.Contains(beside, top(f.pkg)) && !slices.Contains(beside, f.pkg) {
			problems = append(problems, fmt.Sprintf("%s: package %s has no floor; give it one in floors, with a record in docs/decisions", f.path, f.pkg))
			continue
		}
		for _, imp := range f.imports {
			other, ours := strings.CutPrefix(imp, module)
			if !ours {
				continue
			}
			other = strings.TrimPrefix(other, "/")
			if other == "" {
				other = "."
			}
			theirs, ok := level[other]
			switch {
			case !ok && !known && top(f.pkg) == top(other): // beside the floors, among themselves
			case !ok:
				problems = append(problems, fmt.Sprintf("%s imports %s, which is on no floor", f.path, other))
			case !known || theirs < mine || sameGroup(f.pkg, other):
			default:
				problems = append(problems, fmt.Sprintf("%s (floor %s) imports %s (floor %s): only lower floors may be imported",
					f.path, floors[mine].name, other, floors[theirs].name))
			}
		}
	}
	return problems
}

// machineUsers are the packages that may import the machine: the engine, what prepares
// plans for it, what drives a stage (its simulator, and tests of recipes), the view that folds states for readers, and what reads them.
var machineUsers = []string{"internal/engine", "internal/program", "internal/reads", "internal/recipetest", "internal/simulate", "internal/view"}

// TestFloorPlanMachine: a package that only reads events imports journal and view, and a
// worker knows only its task.
func TestFloorPlanMachine(t *testing.T) {
	users := map[string]bool{}
	for _, f := range load(t) {
		if f.test || !slices.Contains(f.imports, module+"/internal/machine") {
			continue
		}
		users[f.pkg] = true
		if !slices.Contains(machineUsers, f.pkg) {
			t.Errorf("%s imports machine: readers of events import journal and view", f.path)
		}
	}
	for _, p := range machineUsers {
		if !users[p] {
			t.Errorf("%s does not import machine: strike it off the list", p)
		}
	}
}

// sqliteUsers are the files that may import package sqlite, in addition to packages
// outside the floors: those that open a store or salvage runs from a damaged one.
var sqliteUsers = []string{"internal/node/node.go", "internal/doctor/gather.go"}

// TestFloorPlanStore: all other packages use the interfaces of package store.
func TestFloorPlanStore(t *testing.T) {
	users := map[string]bool{}
	for _, f := range load(t) {
		if f.test || strings.HasPrefix(f.pkg, "internal/store/") || !slices.Contains(f.imports, module+"/internal/store/sqlite") {
			continue
		}
		users[f.path] = true
		if !slices.Contains(sqliteUsers, f.path) && !slices.Contains(beside, strings.Split(f.pkg, "/")[0]) {
			t.Errorf("%s imports sqlite: take store.Store, or open it with package node", f.path)
		}
	}
	for _, p := range sqliteUsers {
		if !users[p] {
			t.Errorf("%s does not import sqlite: strike it off the list", p)
		}
	}
}

// kindUsers are the files that distinguish kinds of events, in addition to packages
// journal, machine, view and resource: what an engine does when an event is committed, and what the
// simulator compares.
var kindUsers = []string{
	"internal/loops/collect.go", "internal/engine/core.go", "internal/crashes/crashes.go",
	"internal/simulate/gen_tally.go", "internal/simulate/checker.go", "internal/simulate/checker_tree.go", "internal/simulate/checker_inherit.go",
}

// TestEventKinds: code that needs the meaning of a run's events uses a fold of package
// view, so that a new kind of event is handled in one place.
func TestEventKinds(t *testing.T) {
	users := map[string]bool{}
	for _, f := range load(t) {
		if f.test || slices.Contains([]string{"internal/journal", "internal/machine", "internal/view", "internal/resource"}, f.pkg) {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			x, ok := sel.X.(*ast.Ident)
			if ok && x.Name == "journal" && eventKind.MatchString(sel.Sel.Name) {
				users[f.path] = true
				if !slices.Contains(kindUsers, f.path) {
					t.Errorf("%s: journal.%s: take a fold of package view, or make one there", f.fset.Position(n.Pos()), sel.Sel.Name)
				}
			}
			return true
		})
	}
	for _, p := range kindUsers {
		if !users[p] {
			t.Errorf("%s tells no kinds of events apart: strike it off the list", p)
		}
	}
}

// eventKind matches the names of the constants for kinds of events.
var eventKind = regexp.MustCompile(`^Ev(Run|Node|Contract)`)

// TestEventFieldsAreNamed: the meaning of Flag, N and M of an event depends on its kind,
// so code reads them through the methods that are named for the meaning.
func TestEventFieldsAreNamed(t *testing.T) {
	seen := 0
	for _, f := range load(t) {
		if f.test || f.pkg == "internal/simulate" { // it hashes whole events
			continue
		}
		written := map[ast.Expr]bool{}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for _, left := range n.Lhs {
					written[left] = true
				}
			case *ast.SelectorExpr:
				x, ok := n.X.(*ast.Ident)
				if !ok || x.Name != "ev" || written[n] {
					break
				}
				seen++
				if name := n.Sel.Name; name == "Flag" || name == "N" || name == "M" {
					t.Errorf("%s: ev.%s is read: package journal has a name for what it means", f.fset.Position(n.Pos()), name)
				}
			}
			return true
		})
	}
	if seen < 100 {
		t.Errorf("%d fields of events are read, want 100 or more: the test does not see them", seen)
	}
}

func sameGroup(a, b string) bool {
	for _, g := range groups {
		if (a == g || strings.HasPrefix(a, g+"/")) && (b == g || strings.HasPrefix(b, g+"/")) {
			return true
		}
	}
	return false
}

func top(pkg string) string {
	first, _, _ := strings.Cut(pkg, "/")
	return first
}

// TestPurePackages: the core only decides; its callers do all I/O and waiting
// (X75).
func TestPurePackages(t *testing.T) {
	for _, problem := range pureProblems(load(t)) {
		t.Error(problem)
	}
}

// impureFile is in no release build: it reads from the environment which guard
// to remove.
const impureFile = "internal/mutation/guards_removable.go"

// typesOf are pure packages that import one which is not on the list, for its types:
// format encodes transitions and heads, and calls nothing of the store.
var typesOf = map[string]string{"internal/store/format": "internal/store"}

func pureProblems(files []*source) (problems []string) {
	for _, f := range files {
		if f.test || !slices.Contains(pure, f.pkg) || f.path == impureFile {
			continue
		}
		for _, imp := range f.imports {
			if own, ok := strings.CutPrefix(imp, module+"/"); (ok || imp == module) && own != "action" && own != typesOf[f.pkg] && !slices.Contains(pure, own) {
				problems = append(problems, fmt.Sprintf("%s imports %s: what touches the outside is handed to this package, or done by its caller", f.path, imp))
			}
			if imp == "net/url" { // only takes texts apart
				continue
			}
			for _, bad := range impureImports {
				if imp == bad || strings.HasSuffix(bad, "/") && strings.HasPrefix(imp, bad) {
					problems = append(problems, fmt.Sprintf("%s imports %s: this package decides and touches nothing outside", f.path, imp))
				}
			}
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				problems = append(problems, fmt.Sprintf("%s: a goroutine in a package that must be deterministic", f.fset.Position(n.Pos())))
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && slices.Contains(impureNames, x.Name+"."+n.Sel.Name) {
					problems = append(problems, fmt.Sprintf("%s: %s.%s in a package that must be deterministic", f.fset.Position(n.Pos()), x.Name, n.Sel.Name))
				}
			}
			return true
		})
	}
	return problems
}

func TestLibrariesStayInTheirWrappers(t *testing.T) {
	for _, problem := range wrapperProblems(load(t)) {
		t.Error(problem)
	}
}

func wrapperProblems(files []*source) (problems []string) {
	for _, f := range files {
		if f.test || f.foreign {
			continue
		}
		for _, imp := range f.imports {
			if !strings.Contains(top(imp), ".") || imp == module || strings.HasPrefix(imp, module+"/") {
				continue
			}
			lib := ""
			for l := range wrappers {
				if (imp == l || strings.HasPrefix(imp, l+"/")) && len(l) > len(lib) {
					lib = l
				}
			}
			switch {
			case lib == "":
				problems = append(problems, fmt.Sprintf("%s imports %s: a new library needs its wrapper here and a row in docs/dependencies.md", f.path, imp))
			case !slices.Contains(wrappers[lib], f.pkg):
				problems = append(problems, fmt.Sprintf("%s imports %s, which belongs to %s alone", f.path, imp, strings.Join(wrappers[lib], ", ")))
			}
		}
	}
	return problems
}
