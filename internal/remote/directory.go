// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"io"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/resultcache"
	"github.com/roux-engine/roux/internal/retention"
	"github.com/roux-engine/roux/internal/store"
)

// A Service is what commands do with the files, credits and kept results of one account.
type Service interface {
	Files
	Credits
	Results
}

// A Reader reads the runs, the credits and the changes of accounts.
type Reader interface {
	store.Reader
	store.Feed
	// Account and Entries are those of store.Ledger.
	Account(ctx context.Context, account string, at int64) (*ledger.Account, error)
	Entries(ctx context.Context, account string, after uint64, limit int) ([]*ledger.Entry, error)
	// Unended is that of store.Queue.
	Unended(ctx context.Context, account string) (store.Unended, error)
	// MeteredAccounts returns the accounts that may have entries, sorted.
	MeteredAccounts(ctx context.Context) ([]string, error)
}

// Credits is what commands need to move credits of the account. Each method returns
// once the change is durable. They are those of engine.Engine.
type Credits interface {
	Grant(ctx context.Context, key string, amount int64, terms ledger.Terms) (ledger.Lot, error)
	VoidLot(ctx context.Context, lot, note string) (ledger.Lot, error)
	Adjust(ctx context.Context, run, key string, amount int64, note string) ([]*ledger.Entry, error)
}

// Files is what commands need of the files of an account. Content is streamed in both
// directions.
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

// Results is what commands do with the results of actions that are kept for later steps.
type Results interface {
	KeptResults(ctx context.Context) ([]resultcache.ActionUsage, error)
	// ClearResults removes those of an action, or all if it is "", and returns how many.
	ClearResults(ctx context.Context, action string) (int, error)
}

// A File is a file with the runs that name it.
type File struct {
	blob.Entry
	Runs []string `json:"runs"`
}

// MaxRuns bounds File.Runs.
const MaxRuns = 20

// A Directory reads and changes the files and credits of an account, and reads its runs, on a
// node in this process.
type Directory struct {
	Reader
	Node        *node.Node
	AccountName string
}

// Grant implements Credits.
func (d *Directory) Grant(ctx context.Context, key string, amount int64, terms ledger.Terms) (ledger.Lot, error) {
	return d.Node.Engine.Grant(ctx, engine.GrantRequest{Account: d.AccountName, Key: key, Amount: amount, Terms: terms})
}

// VoidLot implements Credits.
func (d *Directory) VoidLot(ctx context.Context, lot, note string) (ledger.Lot, error) {
	return d.Node.Engine.VoidLot(ctx, d.AccountName, lot, note)
}

// Adjust implements Credits.
func (d *Directory) Adjust(ctx context.Context, run, key string, amount int64, note string) ([]*ledger.Entry, error) {
	return d.Node.Engine.Adjust(ctx, d.AccountName, run, key, amount, note)
}

// PutFile implements Files.
func (d *Directory) PutFile(ctx context.Context, r io.Reader, name string) (action.FileInfo, error) {
	return d.Node.Files.Put(ctx, d.AccountName, r, name, "")
}

// ReadFile implements Files.
func (d *Directory) ReadFile(ctx context.Context, hash string, from, n int64) (io.ReadCloser, error) {
	if n < 0 {
		f, err := d.Node.Files.Open(ctx, d.AccountName, hash)
		if err != nil {
			return nil, err
		}
		return f, nil
	}
	r, _, err := d.Node.Files.Part(ctx, d.AccountName, hash, from, n)
	return r, err
}

// FindFile implements Files.
func (d *Directory) FindFile(ctx context.Context, begin string) (File, error) {
	e, err := d.Node.Files.Find(ctx, d.AccountName, begin)
	if err != nil {
		return File{}, err
	}
	runs, err := d.Node.Engine.Files().NamedBy(ctx, d.AccountName, e.Info.Hash, MaxRuns)
	return File{e, runs}, err
}

// ListFiles implements Files.
func (d *Directory) ListFiles(ctx context.Context, q blob.Query) ([]blob.Entry, error) {
	return d.Node.Files.List(ctx, d.AccountName, q)
}

// RemoveFile implements Files.
func (d *Directory) RemoveFile(ctx context.Context, hash string) error {
	return d.Node.Engine.Files().RemoveFile(ctx, d.AccountName, hash)
}

// CleanFiles implements Files.
func (d *Directory) CleanFiles(ctx context.Context, dry bool) (retention.Removed, error) {
	return d.Node.Engine.Clean(ctx, dry)
}

// KeptResults implements Results.
func (d *Directory) KeptResults(ctx context.Context) ([]resultcache.ActionUsage, error) {
	return d.Node.Engine.Cache().Usage(ctx, d.AccountName)
}

// ClearResults implements Results.
func (d *Directory) ClearResults(ctx context.Context, action string) (int, error) {
	return d.Node.Engine.Cache().Clear(ctx, d.AccountName, action)
}
