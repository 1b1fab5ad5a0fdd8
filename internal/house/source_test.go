// SPDX-License-Identifier: Apache-2.0

package house_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const (
	module = "github.com/roux-engine/roux"
	root   = "../.."
	spdx   = "// SPDX-License-Identifier: Apache-2.0\n"
)

// longFiles are files that may exceed maxLines, each with the reason.
var longFiles = map[string]string{}

const (
	maxLines         = 600
	maxFunctionLines = 100
	// Of a package, without its tests.
	maxPackageLines = 6_000
	maxPackageFiles = 30
)

// largePackages are packages that may exceed these sizes, each with the reason.
var largePackages = map[string]string{
	"internal/cli":      "one file for each command or two, and nothing else: what is not a command has left it",
	"internal/simulate": "one world: its processes, disk, workers, services, users and the checker share its state and one seed",
	"internal/machine":  "one state: Decide, Apply and Owed share the fields of a run, and every event kind is in all three",
}

// A source is one Go file of the module, whatever its build constraints.
type source struct {
	path    string // slash-separated, from the module root
	pkg     string // directory; "." for the root
	test    bool
	foreign bool // of a separate module with its own dependencies: bench/peers
	text    []byte
	imports []string
	fset    *token.FileSet
	syntax  *ast.File
}

// load reads every Go file once per test process.
func load(t *testing.T) []*source {
	t.Helper()
	files, err := loadOnce()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 10 {
		t.Fatalf("found %d Go files: the rules would hold vacuously", len(files))
	}
	return files
}

var loadOnce = sync.OnceValues(func() ([]*source, error) {
	var files []*source
	err := walk(func(path string) error {
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			return err
		}
		f, err := parse(path, text)
		if err != nil {
			return err
		}
		_, err = os.Stat(filepath.Join(root, f.pkg, "go.mod"))
		f.foreign = err == nil && f.pkg != "."
		files = append(files, f)
		return nil
	})
	return files, err
})

// walk calls fn for every file that belongs to the project.
func walk(fn func(path string) error) error {
	return filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			switch base := d.Name(); {
			case base == ".ci" || base == "..":
			case base == "testdata" || base == "bin" || base == "dist" || strings.HasPrefix(base, "."):
				return filepath.SkipDir
			}
			return nil
		}
		path, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		return fn(filepath.ToSlash(path))
	})
}

func parse(path string, text []byte) (*source, error) {
	f := &source{
		path: path,
		pkg:  filepath.ToSlash(filepath.Dir(path)),
		test: strings.HasSuffix(path, "_test.go"),
		text: text,
		fset: token.NewFileSet(),
	}
	var err error
	if f.syntax, err = parser.ParseFile(f.fset, path, text, parser.ParseComments|parser.SkipObjectResolution); err != nil {
		return nil, err
	}
	for _, imp := range f.syntax.Imports {
		p, err := strconv.Unquote(imp.Path.Value)
		if err != nil {
			return nil, err
		}
		f.imports = append(f.imports, p)
	}
	return f, nil
}

func TestSources(t *testing.T) {
	for _, problem := range sourceProblems(load(t)) {
		t.Error(problem)
	}
}

func sourceProblems(files []*source) (problems []string) {
	documented := map[string]bool{}
	name := map[string]string{}
	for _, f := range files {
		if !bytes.HasPrefix(f.text, []byte(spdx)) {
			problems = append(problems, fmt.Sprintf("%s: the first line must be %q", f.path, strings.TrimSpace(spdx)))
		}
		if n := bytes.Count(f.text, []byte("\n")); n > maxLines && longFiles[f.path] == "" {
			problems = append(problems, fmt.Sprintf("%s has %d lines; over %d there is an idea in it that wants out", f.path, n, maxLines))
		}
		if f.test {
			continue
		}
		name[f.pkg] = f.syntax.Name.Name
		if doc := f.syntax.Doc.Text(); doc != "" {
			want := "Package " + f.syntax.Name.Name + " "
			if f.syntax.Name.Name == "main" {
				want = "Command "
			}
			program := f.syntax.Name.Name == "main" && strings.HasPrefix(strings.ToLower(doc), filepath.Base(f.pkg)+" ")
			if !strings.HasPrefix(doc, want) && !program {
				problems = append(problems, fmt.Sprintf("%s: the package comment must begin with %q", f.path, want))
			}
			documented[f.pkg] = true
		}
	}
	for pkg, n := range name {
		if !documented[pkg] {
			problems = append(problems, fmt.Sprintf("package %s (%s) has no comment that says what it decides and never does", n, pkg))
		}
	}
	return problems
}

// TestSizes: functions and packages that a reader can hold in the head.
func TestSizes(t *testing.T) {
	files := load(t)
	for _, problem := range sizeProblems(files, largePackages) {
		t.Error(problem)
	}
	for pkg := range largePackages {
		if !slices.ContainsFunc(files, func(f *source) bool { return f.pkg == pkg }) {
			t.Errorf("largePackages has package %s, which does not exist", pkg)
		}
	}
}

func sizeProblems(files []*source, large map[string]string) (problems []string) {
	lines, count := map[string]int{}, map[string]int{}
	for _, f := range files {
		if f.test {
			continue
		}
		lines[f.pkg] += bytes.Count(f.text, []byte("\n"))
		count[f.pkg]++
		for _, d := range f.syntax.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if n := f.fset.Position(fn.End()).Line - f.fset.Position(fn.Pos()).Line + 1; n > maxFunctionLines {
				problems = append(problems, fmt.Sprintf("%s: %s has %d lines; over %d a part of it is a function of its own", f.path, fn.Name.Name, n, maxFunctionLines))
			}
		}
	}
	for pkg, n := range lines {
		over := n > maxPackageLines || count[pkg] > maxPackageFiles
		switch {
		case over && large[pkg] == "":
			problems = append(problems, fmt.Sprintf("package %s has %d lines in %d files; over %d lines or %d files a part of it is a package of its own", pkg, n, count[pkg], maxPackageLines, maxPackageFiles))
		case !over && large[pkg] != "":
			problems = append(problems, fmt.Sprintf("package %s is no longer large: remove it from largePackages", pkg))
		}
	}
	return problems
}

// forbidden matches words that mark unfinished work, or promise the impossible. They are
// concatenated so that this file does not contain them.
var forbidden = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X|HA` + `CK)\b|(?i)\bexact` + `ly[- ]once\b`)

// A quoted rule may name what it forbids.
var quoted = regexp.MustCompile("[\"“`][^\"”`]*[\"”`]")

func TestForbiddenWords(t *testing.T) {
	err := walk(func(path string) error {
		switch filepath.Ext(path) {
		case ".go", ".md", ".yaml", ".yml", ".sql", ".sh", "":
		default:
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			return err
		}
		for _, p := range wordProblems(path, string(text)) {
			t.Error(p)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func wordProblems(path, text string) (problems []string) {
	for i, line := range strings.Split(text, "\n") {
		if word := forbidden.FindString(quoted.ReplaceAllString(line, "")); word != "" {
			problems = append(problems, fmt.Sprintf("%s:%d: %q", path, i+1, word))
		}
	}
	return problems
}

// testName returns the name of a declared test or fuzz target.
func testName(d ast.Decl) (string, bool) {
	f, ok := d.(*ast.FuncDecl)
	if !ok || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Test") && !strings.HasPrefix(f.Name.Name, "Fuzz") {
		return "", false
	}
	return f.Name.Name, true
}
