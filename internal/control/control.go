// SPDX-License-Identifier: Apache-2.0

// Package control lets commands reach the process that holds a data directory.
//
// It decides who may connect, what a request and an answer look like, how long
// each side waits, and which values leave the process. A command that finds no
// such process works on a node of its own through a [Local]. The package decides
// nothing about runs: it passes requests on to the engine.
package control

import (
	"context"
	"io"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/retention"
	"github.com/roux-engine/roux/internal/store"
)

// A Service is what commands do with the files and credits of one account.
type Service interface {
	Files
	Credits
	Backups
}

// A Reader reads the runs, the credits and the changes of all accounts.
type Reader interface {
	store.Reader
	store.Feed
	// Account and Entries are those of store.Ledger.
	Account(ctx context.Context, account string, at int64) (*ledger.Account, error)
	Entries(ctx context.Context, account string, after uint64, limit int) ([]*ledger.Entry, error)
	// Unended is that of store.Queue.
	Unended(ctx context.Context, account string) (store.Unended, error)
	// MeteredAccounts returns the accounts that have entries, sorted.
	MeteredAccounts(ctx context.Context) ([]string, error)
}

// Credits is what commands need to move credits of the account. Each method returns
// once the change is durable. They are those of engine.Engine.
type Credits interface {
	Grant(ctx context.Context, key string, amount int64, terms ledger.Terms) (ledger.Lot, error)
	VoidLot(ctx context.Context, lot, note string) (ledger.Lot, error)
	Adjust(ctx context.Context, run, key string, amount int64, note string) ([]*ledger.Entry, error)
}

// Files is what commands need of the files of a data directory. Content is
// streamed in both directions.
type Files interface {
	PutFile(ctx context.Context, r io.Reader, name string) (action.FileInfo, error)
	// ReadFile returns n bytes starting at from. When n < 0 it returns the whole
	// file and verifies its hash.
	ReadFile(ctx context.Context, hash string, from, n int64) (io.ReadCloser, error)
	// FindFile returns the file whose hash begins so.
	FindFile(ctx context.Context, begin string) (File, error)
	ListFiles(ctx context.Context, q blob.Query) ([]blob.Entry, error)
	RemoveFile(ctx context.Context, hash string) error
	CleanFiles(ctx context.Context, dry bool) (retention.Removed, error)
}

// A File is a file with the runs that name it.
type File struct {
	blob.Entry
	Runs []string `json:"runs"`
}

// MaxRuns bounds File.Runs.
const MaxRuns = 20

var (
	_ Service = (*Local)(nil)
	_ Service = (*Remote)(nil)
	_ Reader  = (*Remote)(nil)
)
