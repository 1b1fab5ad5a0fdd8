// SPDX-License-Identifier: Apache-2.0

// Package client uses a Roux server from Go: its recipes, runs, files, credits and keys.
//
//	c, err := client.New(client.Config{URL: "https://roux.example.com", Key: os.Getenv("ROUX_KEY")})
//	…
//	started, err := c.Recipes.Execute(ctx, "greet", client.ExecuteRequest{Parameters: map[string]any{"name": "Ana"}})
//	…
//	run, err := c.Runs.Wait(ctx, started.ID)
//
// It decides when a request is sent again, and how a stream of events goes on after it was
// cut off. What operations there are, and what they mean, is decided by the server, whose
// document /openapi.json describes them.
//
// # Errors
//
// An error of the server is a [fault.Error] with its code, message, remedy and, where credits
// are missing, its limit, so that [fault.CodeOf] and errors.Is(err, fault.RunNotFound) work as
// in the server. It wraps a [Problem], which has the status and the id of the request. A server
// that cannot be reached is [fault.ServerUnreachable]; the end of the context is its cause.
//
// # Repeated requests
//
// A request is sent again, up to [Config.Attempts] times, after a connection that failed and
// after the statuses 429, 502, 503 and 504, as soon as the server allows (Retry-After), and
// only if a second one changes nothing more: each POST has an Idempotency-Key, by which the
// server recognises it. The exceptions are requests for which the server has no such key (a
// new key, a replacement with a revision): they are sent again only when they cannot have
// arrived.
//
// # Values
//
// Results, inputs and payloads are [encoding/json.RawMessage], because only the recipe knows
// their types. Methods that list return iterators, which ask for the next page when it is
// needed.
package client
