// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/client"
)

// BenchmarkRemoteSteps is a loop of steps that a worker over loopback carries out, in the process
// of the server.
func BenchmarkRemoteSteps(b *testing.B) {
	p, s, url := withWorkers(b, nil)
	c, err := client.New(client.Config{URL: url})
	if err != nil {
		b.Fatal(err)
	}
	w := client.Worker{Client: c, Queue: "default", Concurrency: 512, Actions: []action.Action{{Name: "double", Run: func(context.Context, *action.Task) (action.Result, error) {
		return action.Result{Output: map[string]any{"n": 2}}, nil
	}}}}
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	if status, out := ask(b, "POST", url+"/v1/recipes", "", `{"name": "many", "version": "1.0.0", "inputSchema": {"type": "object", "properties": {"items": {"type": "array"}}},
		"steps": [{"id": "each", "loop": {"over": "input.items", "as": "i", "maxConcurrency": 1000, "steps": [{"id": "d", "action": {"name": "double", "parameters": {"n": 1}}}]}}]}`); status != 201 {
		b.Fatal(status, out)
	}
	const steps = 10_000
	items := "[" + strings.TrimSuffix(strings.Repeat("1,", steps), ",") + "]"
	for b.Loop() {
		status, run := ask(b, "POST", url+"/v1/recipes/many/execute", "", fmt.Sprintf(`{"parameters": {"items": %s}}`, items))
		if status != 202 {
			b.Fatal(status, run)
		}
		if head, err := s.Node.Engine.Wait(b.Context(), "local", run["executionId"].(string)); err != nil || head.Status != "completed" {
			b.Fatal(head, err)
		}
	}
	b.ReportMetric(float64(steps*b.N)/b.Elapsed().Seconds(), "steps/s")
	cancel()
	if err := <-ended; err != nil {
		b.Error(err)
	}
	p.close(s)
}
