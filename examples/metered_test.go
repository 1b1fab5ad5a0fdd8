// SPDX-License-Identifier: Apache-2.0

package examples_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/roux-engine/roux"
	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/examples"
	"github.com/roux-engine/roux/internal/builtin"
)

// With a price of 2.5 the 60 texts cost 150. 100 credits last for 40 of them; a grant
// lets the rest go on, and what was done before is not paid again.
func TestMeteredBatch(t *testing.T) {
	ctx := t.Context()
	var priced []action.Action
	for _, a := range builtin.Actions(builtin.Config{}) {
		if a.Name == "text-replace" {
			a.Cost, a.Price = 0, "2.5"
			priced = append(priced, a)
		}
	}
	e, err := roux.Open(ctx, roux.Options{Dir: t.TempDir(), Account: "acme", Actions: priced})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, err := e.Grant(ctx, roux.Grant{Key: "october", Amount: 100}); err != nil {
		t.Fatal(err)
	}
	req := roux.Request{Source: "metered-batch.yaml"}
	if req.Recipe, err = examples.Read("metered-batch.yaml"); err != nil {
		t.Fatal(err)
	}
	input, err := examples.Read("metered-batch.json")
	if err == nil {
		err = json.Unmarshal(input, &req.Input)
	}
	if err != nil {
		t.Fatal(err)
	}
	run, err := e.Start(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	blocked := ""
	for ev, err := range e.Watch(ctx, run, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Payload["lacksCredits"] != true {
			continue
		}
		blocked += ev.Step
		if _, err := e.Grant(ctx, roux.Grant{Key: "november", Amount: 100}); err != nil {
			t.Fatal(err)
		}
	}
	res, err := e.Wait(ctx, run)
	if err != nil || res.Status != "completed" || res.Credits != 150 || blocked != "each[40].clean" {
		t.Errorf("the run is %s (%v) and used %d, %v; blocked at %q", res.Status, res.Err, res.Credits, err, blocked)
	}
	var out struct{ Texts []string }
	if err := json.Unmarshal(res.Outputs, &out); err != nil || len(out.Texts) != 60 || out.Texts[59] != "page 60 of 60" {
		t.Errorf("the outputs are %s, %v", res.Outputs, err)
	}
	if b, err := e.Balance(ctx, time.Time{}); err != nil || b.Spent != 150 || b.Available != 50 || b.Held != 0 {
		t.Errorf("the balance is %+v, %v", b, err)
	}
}
