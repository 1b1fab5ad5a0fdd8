// SPDX-License-Identifier: Apache-2.0

package house_test

import (
	"go/ast"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
)

// Every error code, flag and environment variable occurs in a transcript, a golden file
// or a test, because otherwise it could be lost unnoticed. (Fields of recipes and plans,
// inputs, events and commands are covered by internal/machine, whose tests ignore them
// one by one and run its scenarios.)

// untestedCodes are the codes that no test covers yet, each with the reason.
var untestedCodes = map[fault.Code]string{
	fault.AssertionFailed: "expectations come with recipe tests",
}

// untestedFlags are the flags that no transcript uses yet.
var untestedFlags = map[string]string{}

// untestedVariables are the environment variables that no test sets yet.
var untestedVariables = map[string]string{}

// corpus returns the texts that can prove that a name is used: the code of tests and their
// test data. A name in the table that defines it proves nothing.
func corpus(t *testing.T) (tests, testdata string) {
	t.Helper()
	var code, data strings.Builder
	for _, f := range load(t) {
		if f.test && f.pkg != "internal/house" {
			code.Write(f.text)
		}
	}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == ".tools" || d.Name() == "fuzz"):
			return fs.SkipDir
		case d.IsDir() || !strings.Contains(filepath.ToSlash(path), "/testdata/") || !textExtensions[filepath.Ext(path)]:
			return nil
		}
		text, err := os.ReadFile(path)
		data.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return code.String(), data.String()
}

// textExtensions are the extensions of golden files, scenarios and transcripts.
var textExtensions = map[string]bool{".txt": true, ".txtar": true, ".jsonl": true, ".json": true, ".yaml": true}

// hasWord reports whether text has a name that is not followed by a letter, digit or
// underscore.
func hasWord(text, name string) bool {
	for {
		at := strings.Index(text, name)
		if at < 0 {
			return false
		}
		text = text[at+len(name):]
		if text == "" || text[0] != '_' && (text[0]|0x20 < 'a' || text[0]|0x20 > 'z') && (text[0] < '0' || text[0] > '9') {
			return true
		}
	}
}

// listed fails the test for names that are neither used nor among the
// exceptions.
func listed[K ~string](t *testing.T, what string, names []K, exceptions map[K]string, used func(K) bool) {
	t.Helper()
	if len(names) == 0 {
		t.Fatalf("no %s found: the rule would hold vacuously", what)
	}
	for _, name := range names {
		reason, ok := exceptions[name]
		switch {
		case !used(name) && !ok:
			t.Errorf("%s %s is named by no test, golden or transcript", what, name)
		case !used(name):
			t.Logf("exception: %s %s: %s", what, name, reason)
		case ok:
			t.Logf("%s %s is used now: take it off the list of exceptions", what, name)
		}
	}
	for name := range exceptions {
		if !slices.Contains(names, name) {
			t.Errorf("the exception %s %s names nothing", what, name)
		}
	}
}

func TestEveryCodeIsProvoked(t *testing.T) {
	tests, testdata := corpus(t)
	idents := codeNames(t)
	var codes []fault.Code
	for _, row := range fault.All() {
		codes = append(codes, row.Code)
	}
	listed(t, "code", codes, untestedCodes, func(code fault.Code) bool {
		return hasWord(testdata, string(code)) || hasWord(tests, string(code)) || hasWord(tests, "fault."+idents[code])
	})
}

// codeNames returns the Go constant of each code.
func codeNames(t *testing.T) map[fault.Code]string {
	t.Helper()
	idents := map[fault.Code]string{}
	for _, f := range load(t) {
		if f.pkg != "fault" || f.test {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Names) == 1 && len(spec.Values) == 1 {
				if lit, ok := spec.Values[0].(*ast.BasicLit); ok {
					idents[fault.Code(strings.Trim(lit.Value, `"`))] = spec.Names[0].Name
				}
			}
			return true
		})
	}
	return idents
}

func TestEveryFlagIsTried(t *testing.T) {
	tests, testdata := corpus(t)
	var flags []string
	short := map[string]string{}
	for _, f := range load(t) {
		if f.test || f.pkg != "internal/cli" {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !definesFlag(sel) {
				return true
			}
			var words []string
			for _, arg := range call.Args {
				if lit, ok := arg.(*ast.BasicLit); ok && strings.HasPrefix(lit.Value, `"`) {
					words = append(words, strings.Trim(lit.Value, `"`))
				}
			}
			if len(words) == 0 {
				return true
			}
			flags = append(flags, words[0])
			if strings.HasSuffix(sel.Sel.Name, "P") && len(words) > 1 {
				short[words[0]] = words[1]
			}
			return true
		})
	}
	slices.Sort(flags)
	listed(t, "flag", slices.Compact(flags), untestedFlags, func(flag string) bool {
		s, ok := short[flag]
		return hasWord(testdata, "--"+flag) || hasWord(tests, "--"+flag) || ok && hasWord(testdata, " -"+s)
	})
}

// definesFlag recognises x.Flags().StringVar(…), flags.BoolVarP(…) and the like.
func definesFlag(sel *ast.SelectorExpr) bool {
	if !regexp.MustCompile(`^(String|Bool|Int|Int64|Uint64|Float64|Duration|StringSlice|StringArray)(Var)?P?$`).MatchString(sel.Sel.Name) {
		return false
	}
	switch x := sel.X.(type) {
	case *ast.Ident:
		return x.Name == "flags"
	case *ast.CallExpr:
		of, ok := x.Fun.(*ast.SelectorExpr)
		return ok && (of.Sel.Name == "Flags" || of.Sel.Name == "PersistentFlags")
	}
	return false
}

func TestEveryVariableIsSet(t *testing.T) {
	tests, testdata := corpus(t)
	var vars []string
	for _, f := range load(t) {
		if f.test || strings.HasPrefix(f.pkg, "internal/house") {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && len(call.Args) > 0 {
				sel, isSel := call.Fun.(*ast.SelectorExpr)
				lit, isLit := call.Args[0].(*ast.BasicLit)
				if isSel && isLit && (sel.Sel.Name == "Getenv" || sel.Sel.Name == "LookupEnv") {
					vars = append(vars, strings.Trim(lit.Value, `"`))
				}
			}
			return true
		})
	}
	slices.Sort(vars)
	listed(t, "variable", slices.Compact(vars), untestedVariables, func(name string) bool {
		return hasWord(testdata, name) || hasWord(tests, name)
	})
}
