// SPDX-License-Identifier: Apache-2.0

// Package view is what readers make of a run's journal: what may be shown of an
// event, and the state that a journal folds into.
//
// It decides nothing about a run and reads no store: whoever has the events, in
// order, hands them in. Command lines, exports and checks import it and package
// journal; the machine itself is for the engine.
package view
