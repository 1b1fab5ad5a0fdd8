// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/roux-engine/roux/client"
)

// The texts of a run are those of the last attempts of its steps. An event that was added before
// changes nothing.
func TestX181_Texts(t *testing.T) {
	var texts client.Texts
	var shown []string
	add := func(id uint64, kind, payload string) {
		t.Helper()
		p, ok, err := texts.Add(&client.Event{ID: id, Type: kind, Payload: json.RawMessage(payload)})
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			shown = append(shown, fmt.Sprintf("%s%d %t %s", p.Node, p.Attempt, p.Again, p.Text))
		}
	}
	add(1, "run.started", `{}`)
	add(2, "node.started", `{"nodeId":"a","attempt":1}`)
	add(3, "node.stream.delta", `{"nodeId":"a","attempt":1,"deltaIndex":0,"text":"once "}`)
	add(4, "node.started", `{"nodeId":"b","attempt":1}`)
	add(6, "node.stream.delta", `{"nodeId":"b","attempt":1,"firstDeltaIndex":0,"deltaIndex":1,"text":"other"}`)
	add(6, "node.stream.delta", `{"nodeId":"b","attempt":1,"firstDeltaIndex":0,"deltaIndex":1,"text":"other"}`) // again
	add(3, "node.stream.delta", `{"nodeId":"a","attempt":1,"deltaIndex":0,"text":"once "}`)                     // again
	add(7, "node.stream.delta", `{"nodeId":"a","attempt":1,"deltaIndex":1,"text":"upon"}`)
	if got := texts.Of("a") + "|" + texts.Of("b") + "|" + texts.Of("c"); got != "once upon|other|" {
		t.Errorf("got %q", got)
	}
	add(8, "node.retried", `{"nodeId":"a","attempt":1}`)
	add(9, "node.started", `{"nodeId":"a","attempt":2}`)
	if got := texts.Of("a") + "|" + texts.Of("b"); got != "|other" {
		t.Errorf("in the second attempt %q", got)
	}
	add(10, "node.stream.delta", `{"nodeId":"a","attempt":2,"deltaIndex":2,"text":"a time"}`)
	add(11, "node.stream.delta", `{"nodeId":"b","attempt":3,"deltaIndex":2,"text":"new"}`) // without its start
	if got := texts.Of("a") + "|" + texts.Of("b"); got != "a time|new" {
		t.Errorf("at the end %q", got)
	}
	if got := strings.Join(shown, ","); got != "a1 false once ,b1 false other,a1 false upon,a2 true ,a2 false a time,b3 true new" {
		t.Errorf("shown %s", got)
	}
	if _, _, err := texts.Add(&client.Event{ID: 12, Type: "node.stream.delta", Payload: json.RawMessage(`{"attempt":"x"}`)}); err == nil {
		t.Error("an event that cannot be read is accepted")
	}
}

func ExampleTexts() {
	c, stop := serveExample()
	defer stop()
	ctx := context.Background()

	started, err := c.Recipes.Execute(ctx, "tell", client.ExecuteRequest{})
	if err != nil {
		fmt.Println(err)
		return
	}
	var texts client.Texts
	for e, err := range c.Runs.Events(ctx, started.ID, client.EventOptions{Types: []string{"node.started", "node.stream.delta"}}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		if _, _, err := texts.Add(&e); err != nil {
			fmt.Println(err)
			return
		}
	}
	fmt.Println(texts.Of("say"))
	// Output: Once upon a time
}

// X219: what a client puts together from the frames of a run is the same however often they arrive: a stream that is cut
// begins again before where it was, and two streams overlap.
func TestX219_DuplicateFramesChangeNothing(t *testing.T) {
	c := startServer(t).client()
	if _, _, err := c.Recipes.Create(t.Context(), []byte(tell)); err != nil {
		t.Fatal(err)
	}
	started, err := c.Recipes.Execute(t.Context(), "tell", client.ExecuteRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var events []client.Event
	for e, err := range c.Runs.Events(t.Context(), started.ID, client.EventOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	var once client.Texts
	pieces := 0
	for i := range events {
		if _, ok, err := once.Add(&events[i]); err != nil {
			t.Fatal(err)
		} else if ok {
			pieces++
		}
	}
	if once.Of("say") == "" || pieces == 0 {
		t.Fatalf("the run says nothing: %d events", len(events))
	}
	for seed := range uint64(50) {
		dice := rand.New(rand.NewPCG(seed, 1))
		var often client.Texts
		shown, changes := "", 0
		for next := 0; next < len(events); {
			from := dice.IntN(next + 1) // where the stream begins again
			to := next + 1 + dice.IntN(len(events)-next)
			for i := from; i < to; i++ {
				p, ok, err := often.Add(&events[i])
				if err != nil {
					t.Fatal(err)
				}
				if ok {
					changes++
					if p.Again {
						shown = ""
					}
					shown += p.Text
				}
			}
			next = to
		}
		if often.Of("say") != once.Of("say") || shown != once.Of("say") || changes != pieces {
			t.Fatalf("seed %d: %q in %d pieces, want %q in %d", seed, shown, changes, once.Of("say"), pieces)
		}
	}
}
