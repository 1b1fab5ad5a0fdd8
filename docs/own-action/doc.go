// SPDX-License-Identifier: Apache-2.0

// Command own-action is the program of docs/own-action.md: it embeds Roux with two
// actions of its own.
package main
