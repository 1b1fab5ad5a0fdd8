// SPDX-License-Identifier: Apache-2.0

package house_test

import (
	"fmt"
	"go/ast"
	"slices"
	"testing"
)

// dialNames are the names of the standard library that open a connection or resolve
// a name.
var dialNames = []string{
	"net.Dial", "net.DialTimeout", "net.DialTCP", "net.DialUDP", "net.DialIP", "net.DialUnix", "net.Dialer",
	"net.Resolver", "net.DefaultResolver", "net.LookupHost", "net.LookupIP", "net.LookupAddr", "net.ResolveTCPAddr",
	"http.Get", "http.Head", "http.Post", "http.PostForm", "http.Client", "http.Transport", "http.DefaultClient", "http.DefaultTransport",
	"http.ProxyFromEnvironment", "tls.Dial", "tls.DialWithDialer", "tls.Dialer", "smtp.SendMail", "smtp.Dial", "rpc.Dial",
}

// mayDial are the files that may use them: the guard, and the code for the socket in the
// data directory, which is local, and the client of a server, whose address is no value of a
// recipe.
var mayDial = map[string]string{
	"internal/egress/egress.go":  "the guarded dialer itself",
	"internal/local/local.go":    "a unix socket in the data directory",
	"internal/local/pipe.go":     "a pipe in memory",
	"internal/local/requests.go": "requests to the socket in the data directory",
	"internal/remote/holder.go":  "requests to the socket in the data directory, or through a pipe",
	"client/client.go":           "the client of a server that its user names",
	"bench/client.go":            "a server on loopback that the benchmark has started",
	"sim/kill/connect.go":        "a server on loopback that the bench has started",
	"sim/kill/proxy.go":          "the same, between it and its remote workers",
}

// TestI19_OneWayOut: every outgoing connection is dialled by package egress.
func TestI19_OneWayOut(t *testing.T) {
	files := load(t)
	for _, problem := range dialProblems(files) {
		t.Error(problem)
	}
	for path := range mayDial {
		if !slices.ContainsFunc(files, func(f *source) bool { return f.path == path }) {
			t.Errorf("%s may dial and does not exist", path)
		}
	}
}

func dialProblems(files []*source) (problems []string) {
	for _, f := range files {
		if f.test || f.foreign || mayDial[f.path] != "" {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && slices.Contains(dialNames, x.Name+"."+sel.Sel.Name) {
				problems = append(problems, fmt.Sprintf("%s: %s.%s goes out past the guard: use internal/egress",
					f.fset.Position(n.Pos()), x.Name, sel.Sel.Name))
			}
			return true
		})
	}
	return problems
}
