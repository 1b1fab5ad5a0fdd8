// SPDX-License-Identifier: Apache-2.0

// Package roux runs recipes: durable, metered workflows over files, models and
// external services, embedded in a Go program.
//
// [Open] takes a data directory and the program's own actions: Go functions declared
// with package action, in addition to those that come with Roux. Once [Engine.Start]
// has returned, the run survives the process: after a crash the next Open continues
// it. Effects are attempted at least once and recorded once.
//
//	e, err := roux.Open(ctx, roux.Options{Dir: "data", Actions: []action.Action{greet}})
//	id, err := e.Start(ctx, roux.Request{Recipe: source, Input: map[string]any{"name": "Ada"}})
//	result, err := e.Wait(ctx, id)
//
// The package only wires the parts together: package compile decides what a recipe
// means, machine what runs next, and store what is durable. Errors are *fault.Error;
// their codes are documented and stable.
package roux
