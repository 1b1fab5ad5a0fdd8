// SPDX-License-Identifier: Apache-2.0

// Package view is what readers make of a run's journal: what may be shown of an event
// ([Mask]), how a run and its steps stand ([Run]), where the time went ([Tracer]), why
// a step is where it is ([Explainer]), what differs between two runs ([Compare]), the
// state that a journal folds into ([State]), and the words for all that.
//
// It decides nothing about a run, reads no store and prints nothing: whoever has the
// events, in order, hands them in, and lays out what comes of them. Command lines,
// exports and checks import it and package journal; the machine itself is for the
// engine.
package view
