// SPDX-License-Identifier: Apache-2.0

// Package recipetest runs recipes without effects: tests of recipes ([Suite]), and
// rehearsals of what a new revision would have done with runs that were recorded
// ([Rehearsal]).
//
// Both run the real engine and the real machine over a store in memory, in virtual time: a
// wait of three days takes no longer than one of a second. What is replaced are the calls of
// actions. In a test they have the answers of its mocks, in a rehearsal the recorded results.
//
// The package decides how tests are written, which calls are answered by what, what is
// compared, and how much of a recipe tests cover. It calls an action that has effects only if a
// test allows it by name, never takes credits of a real account, and never writes to the store
// of real runs.
package recipetest
