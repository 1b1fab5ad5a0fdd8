// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A mutant is one change of one file: the bytes [from, to) become text.
type mutant struct {
	file     string // path below the root of the repository
	function string // the function or method that contains the change
	line     int
	from, to int
	was      string // the original line, trimmed
	text     string
	change   string // the change in a few words
}

// key identifies a mutant by what it changes and not by its line number, so that a
// judgement about it survives edits above it.
func (m mutant) key() string {
	return fmt.Sprintf("%s %s: %s: %s", filepath.ToSlash(filepath.Dir(m.file)), m.function, m.was, m.change)
}

func (m mutant) place() string { return fmt.Sprintf("%s:%d", m.file, m.line) }

// mutantsOf lists every mutant of the named files in dir, a directory below root, in
// order.
func mutantsOf(root, dir string, names []string) ([]mutant, error) {
	var all []mutant
	for _, name := range names {
		path := filepath.Join(dir, name)
		source, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			return nil, err
		}
		found, err := mutantsIn(path, source)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// mutantsIn lists the mutants of one file.
func mutantsIn(path string, source []byte) ([]mutant, error) {
	files := token.NewFileSet()
	tree, err := parser.ParseFile(files, path, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	l := lister{path: path, source: source, file: files.File(tree.Pos())}
	for _, d := range tree.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		l.function = functionName(f)
		ast.Inspect(f.Body, l.visit)
	}
	return l.found, nil
}

func functionName(f *ast.FuncDecl) string {
	if f.Recv == nil || len(f.Recv.List) == 0 {
		return f.Name.Name
	}
	t := f.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if index, ok := t.(*ast.IndexExpr); ok {
		t = index.X
	}
	if id, ok := t.(*ast.Ident); ok {
		return id.Name + "." + f.Name.Name
	}
	return f.Name.Name
}

type lister struct {
	path, function string
	source         []byte
	file           *token.File
	found          []mutant
}

// swaps are the operators and the operator that replaces each.
var swaps = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.EQL: token.NEQ, token.NEQ: token.EQL, token.LAND: token.LOR, token.LOR: token.LAND,
	token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL,
	token.AND: token.OR, token.OR: token.AND, token.SHL: token.SHR, token.SHR: token.SHL,
	token.INC: token.DEC, token.DEC: token.INC,
	token.ADD_ASSIGN: token.SUB_ASSIGN, token.SUB_ASSIGN: token.ADD_ASSIGN,
	token.OR_ASSIGN: token.AND_ASSIGN, token.AND_ASSIGN: token.OR_ASSIGN,
	token.BREAK: token.CONTINUE, token.CONTINUE: token.BREAK,
}

// visit adds the mutants of one node. Calls of panic, and what they print, are not
// changed, because they stand for what cannot happen. Failpoints are not changed
// either, because they do nothing in the tested builds.
func (l *lister) visit(n ast.Node) bool {
	if s, ok := n.(ast.Stmt); ok && strings.HasPrefix(strings.TrimPrefix(l.text(s), "err = "), "failpoint.") {
		return false
	}
	switch n := n.(type) {
	case *ast.CallExpr:
		if id, ok := n.Fun.(*ast.Ident); ok && id.Name == "panic" {
			return false
		}
	case *ast.BinaryExpr:
		if _, text := n.X.(*ast.BasicLit); n.Op == token.ADD && text {
			break // usually text, which has no minus
		}
		l.swap(n.OpPos, n.Op)
	case *ast.IncDecStmt:
		l.swap(n.TokPos, n.Tok)
	case *ast.BranchStmt:
		if n.Label == nil {
			l.swap(n.TokPos, n.Tok)
		}
	case *ast.AssignStmt:
		l.swap(n.TokPos, n.Tok)
		if n.Tok != token.DEFINE {
			l.remove(n)
		}
	case *ast.ExprStmt:
		if call, ok := n.X.(*ast.CallExpr); ok {
			if id, ok := call.Fun.(*ast.Ident); ok && id.Name == "panic" {
				return false
			}
			l.remove(n)
		}
	case *ast.IfStmt:
		l.add(n.Cond, "!("+l.text(n.Cond)+")", "negated")
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			l.add(n, l.text(n.X), "! removed")
		}
	case *ast.BasicLit:
		if v, err := strconv.Atoi(n.Value); n.Kind == token.INT && err == nil {
			l.add(n, strconv.Itoa(v+1), fmt.Sprintf("%d becomes %d", v, v+1))
		}
	case *ast.Ident:
		switch n.Name {
		case "true":
			l.add(n, "false", "true becomes false")
		case "false":
			l.add(n, "true", "false becomes true")
		}
	}
	return true
}

func (l *lister) swap(pos token.Pos, op token.Token) {
	if other, ok := swaps[op]; ok {
		from := l.file.Offset(pos)
		l.put(from, from+len(op.String()), other.String(), op.String()+" becomes "+other.String())
	}
}

// remove removes a statement. If a variable is then unused, the mutant does not
// compile.
func (l *lister) remove(n ast.Stmt) {
	l.add(n, "", "removed: "+strings.Join(strings.Fields(l.text(n)), " "))
}

func (l *lister) add(n ast.Node, text, change string) {
	l.put(l.file.Offset(n.Pos()), l.file.Offset(n.End()), text, change)
}

func (l *lister) put(from, to int, text, change string) {
	line := l.file.Line(l.file.Pos(from))
	begin := l.file.Offset(l.file.LineStart(line))
	was, _, _ := bytes.Cut(l.source[begin:], []byte("\n"))
	l.found = append(l.found, mutant{
		file: l.path, function: l.function, line: line, from: from, to: to,
		was: strings.TrimSpace(string(was)), text: text, change: change,
	})
}

func (l *lister) text(n ast.Node) string {
	return string(l.source[l.file.Offset(n.Pos()):l.file.Offset(n.End())])
}

// apply returns the source with the mutant in it, or an error when the result is not
// Go.
func (m mutant) apply(source []byte) ([]byte, error) {
	changed := bytes.Join([][]byte{source[:m.from], []byte(m.text), source[m.to:]}, nil)
	if _, err := format.Source(changed); err != nil {
		return nil, err
	}
	return changed, nil
}
