// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"strings"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/catalogue"
)

// X20: the DAG source calls the action http call_external_service. An alias finds every
// version of the action and compiles to the same plan; an action with the name of the
// alias takes precedence.
func TestX20_Aliases(t *testing.T) {
	old := &action.Action{Name: "http", Version: "1.0.0", Aliases: []string{"call_external_service"}}
	now := &action.Action{Name: "http", Version: "1.1.0", Aliases: []string{"call_external_service"}}
	cat := catalogue.New(old, now)
	if cat.Find("call_external_service", "") != now || cat.Find("call_external_service", "1.0.0") != old {
		t.Error("the alias does not find the versions of http")
	}
	if got := strings.Join(cat.Versions("call_external_service"), " "); got != "1.1.0 1.0.0" {
		t.Errorf("versions by alias: %s", got)
	}
	if got := strings.Join(cat.Names(), " "); got != "http" {
		t.Errorf("names: %s, an alias is no action of its own", got)
	}
	text := "name: x\nsteps:\n  - id: a\n    action: {name: NAME, version: '1'}\n"
	var hashes []string
	for _, name := range []string{"http", "call_external_service"} {
		p, _, _, diags := Source("x.yaml", []byte(strings.Replace(text, "NAME", name, 1)), Options{Actions: cat})
		if p == nil {
			t.Fatalf("%s: %s", name, dumpDiagnostics(diags))
		}
		if p.Actions[0].Name != "http" {
			t.Errorf("%s: the plan calls %s", name, p.Actions[0].Name)
		}
		hashes = append(hashes, p.Hash().String())
	}
	if hashes[0] != hashes[1] {
		t.Error("an alias makes another plan")
	}

	own := &action.Action{Name: "call_external_service", Version: "3.0.0"}
	for _, cat := range []*catalogue.Catalogue{catalogue.New(now, own), catalogue.New(own, now)} {
		if cat.Find("call_external_service", "") != own || cat.Find("http", "") != now {
			t.Error("an alias took the place of an action of that name")
		}
	}
}
