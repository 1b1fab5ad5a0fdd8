// SPDX-License-Identifier: Apache-2.0

// Package bulk does one thing to many runs of an account.
//
// It decides which runs a bulk takes and in which order, how fast they are done, how many
// bulks an account may have open, and what is recorded of each run. A bulk survives a
// restart: runs are recorded as items before anything is done to them, and a run whose item
// has no result is looked at again. What was done to it the first time is recognised by its
// head, so one bulk retries a run once, however often the process dies.
//
// It never decides whether a run can be cancelled, retried or deleted: the engine does, and
// what it refuses is the result of that item.
package bulk
