// SPDX-License-Identifier: Apache-2.0

// Package format encodes and decodes what a store keeps on disk: journal rows,
// blobs, packs and the checksums of columns.
//
//	row.go      a journal row: the events of one commit, each record findable alone
//	blob.go     a blob: a chunk, a snapshot or a pack, perhaps compressed
//	changes.go  a row of the feed: consecutive changes of one account
//	pack.go     a pack: the small compactions of many runs in one blob
//	sum.go      checksums of the columns that no blob covers
//
// The bytes are a promise: stores of earlier releases are read for ever, and what
// this package writes today was written by them. The package does no I/O and knows
// no SQL; whoever stores the bytes decides where they go and what to do when they
// are damaged.
package format
