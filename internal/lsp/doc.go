// SPDX-License-Identifier: Apache-2.0

// Package lsp is a language server for the texts of recipes and lenses.
//
// It decides what an editor shows of a text: its problems, what its names mean, what may stand at a place,
// and which edits rename a name. It speaks the Language Server Protocol (3.17) on two streams. What is wrong
// with a text is decided by package compile, as for `roux validate`; what a text may say comes from the forms
// of the dialects. It never writes a file and never uses the network.
package lsp
