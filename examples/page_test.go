// SPDX-License-Identifier: Apache-2.0

package examples_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/roux-engine/roux/examples"
)

// The page of the examples is generated from the comments at their heads.
func TestPageIsCurrent(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Examples\n\nGenerated from the recipes in [examples](../examples) by `go test ./examples -rewrite`; do not edit. Each is a complete recipe " +
		"of less than 60 lines with an input file and a test. `roux init DIR --example NAME` copies one into a new project.\n\n" +
		"Examples that need an outside service use the one that comes with them: start it with `go run ./examples/service/run`, " +
		"and allow it with `export ROUX_EGRESS_ALLOW=127.0.0.1/32`, because local addresses are refused by default.\n")
	for _, e := range examples.All() {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n```sh\n%s\n```\n\n[Recipe](../examples/%s)\n\n![The graph of %s](../examples/%s.svg)\n", e.Name, e.Title, e.Command, e.Recipe, e.Name, e.Name)
	}
	const page = "../docs/examples.md"
	if *rewrite {
		if err := os.WriteFile(page, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(page); err != nil || string(have) != b.String() {
		t.Errorf("docs/examples.md is not current (%v): go test ./examples -rewrite", err)
	}
}
