// SPDX-License-Identifier: Apache-2.0

// Package roux runs recipes: durable, metered workflows over files, models and
// external services, embedded in a Go program.
//
// [Open] takes a data directory and the program's own actions, Go functions
// declared with package action, beside those that come with Roux. A run that
// [Engine.Start] has answered survives the process: after a crash the next Open
// goes on with it. Effects are attempted at least once and recorded once.
//
//	e, err := roux.Open(ctx, roux.Options{Dir: "data", Actions: []action.Action{greet}})
//	id, err := e.Start(ctx, roux.Request{Recipe: source, Input: map[string]any{"name": "Ada"}})
//	result, err := e.Wait(ctx, id)
//
// The package wires the parts together and decides nothing itself: what a
// recipe means is compile's, what runs next the machine's, what is durable the
// store's. Errors are *fault.Error; their codes are documented and stable.
package roux
