// SPDX-License-Identifier: Apache-2.0

// Command own-action is the program of docs/own-action.md: Roux embedded, with two
// actions of its own.
package main
