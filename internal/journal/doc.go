// SPDX-License-Identifier: Apache-2.0

// Package journal says what a run's journal holds.
//
// A journal is a run's events in order, numbered 1, 2, 3. This package has their
// kinds and fields, the bytes they are stored as, the paths that name scopes and
// step instances, the envelope that people see, the history of every step that
// follows from them, and the table of which event may follow which with the
// [Checker] that holds a journal to it.
//
// It decides nothing about a run: what follows from an event is package machine,
// and whoever only reads events imports this package and not that one. It does no
// I/O and knows no clock.
package journal
