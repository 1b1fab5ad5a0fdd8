// SPDX-License-Identifier: Apache-2.0

// Package view turns a run's journal into what readers need: events as they may be
// shown ([Mask]), the progress of a run and its steps ([Run]), where the time went
// ([Tracer]), why a step has its status ([Explainer]), the differences between two
// runs ([Compare]), the state that a journal folds to ([State]), and the texts for all
// of them.
//
// It decides nothing about a run, reads no store and prints nothing: the caller passes
// the events in order and formats the result. Command lines, exports and checks import
// it and package journal; only the engine imports machine.
package view
