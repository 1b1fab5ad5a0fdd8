// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/view"
)

// With its journal, in pieces of any size, and its plan, a program computes what the server
// shows of a run. What the recipe marks as writeOnly does not leave the server.
func TestJournalOverHTTP(t *testing.T) {
	s := start(t)
	dev, other := s.key("acme", access.Developer), s.key("other", access.Developer)
	s.register(dev, `{"name":"marks","version":"1.0.0","inputSchema":{"type":"object","properties":{"token":{"type":"string","writeOnly":true},"name":{"type":"string"}}},
		"steps":[{"id":"one","transform":{"expression":"input.name + input.token","outputBinding":"x"}},{"id":"two","transform":{"expression":"[1][size(x)]"}}]}`)
	s.register(dev, greet)
	for recipe, params := range map[string]string{"marks": `{"parameters":{"token":"hush-hush","name":"Ana"}}`, "greet": `{"parameters":{"name":"Ana"}}`} {
		run := s.execute(dev, recipe, params)
		at := "/v1/recipe-executions/" + run
		s.events(dev, run, "", func(event) bool { return true })
		text := s.call(dev, "GET", at+"/plan", nil).want(200)
		p, err := plan.Decode(text.body)
		if err != nil {
			t.Fatal(err)
		}
		for _, most := range []int{1, 300, 262144} {
			v, last := view.NewRun(p, run), uint64(0)
			for {
				page := s.call(dev, "GET", fmt.Sprintf("%s/journal?after=%d&maxBytes=%d", at, last, most), nil).want(200)
				if bytes.Contains(page.body, []byte("hush")) {
					t.Fatalf("%s: the answer has a value that is marked: %s", recipe, page.body)
				}
				if page.text("plan") != p.Key() || page.text("recipeName") != recipe {
					t.Fatalf("%s: %s", recipe, page.body)
				}
				frames, err := base64.StdEncoding.DecodeString(page.text("events"))
				if err != nil || bytes.Contains(frames, []byte("hush")) {
					t.Fatalf("%s: %v %q", recipe, err, frames)
				}
				err = journal.EachEvent(frames, func(ev *journal.Event) error {
					if ev.Seq <= last {
						return nil
					}
					last = ev.Seq
					return v.Apply(ev)
				})
				if err != nil {
					t.Fatal(err)
				}
				if last != uint64(page.get("next").(float64)) {
					t.Fatalf("%s: event %d: %s", recipe, last, page.body)
				}
				if last == uint64(page.get("last").(float64)) {
					break
				}
			}
			if !v.Done() || v.Events != last {
				t.Errorf("%s, %d bytes at a time: %d events, %s", recipe, most, v.Events, v.Status)
			}
		}
		none := s.call(dev, "GET", at+"/journal?after=2&maxBytes=0", nil).want(200)
		if none.get("events") != nil || none.get("next") != float64(2) || none.get("last") == float64(0) {
			t.Errorf("without events: %s", none.body)
		}
		s.call(other, "GET", at+"/journal", nil).problem(fault.RunNotFound)
		s.call(other, "GET", at+"/plan", nil).problem(fault.RunNotFound)
	}
}
