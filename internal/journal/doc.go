// SPDX-License-Identifier: Apache-2.0

// Package journal defines the contents of a run's journal.
//
// A journal is a run's events in order, numbered 1, 2, 3. This package has their kinds
// and fields, their stored form, the paths that name scopes and step instances, the
// envelope that is their public form, and the history of every step. It also has the
// table of allowed transitions and the [Checker] that checks a journal against it.
//
// It decides nothing about a run: package machine does. Code that only reads events
// imports this package and not machine. It does no I/O and uses no clock.
package journal
