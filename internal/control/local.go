// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"io"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/retention"
)

// A Local reads and changes the files and credits of an account, and reads its runs, on a node in this
// process.
type Local struct {
	Reader
	Node        *node.Node
	AccountName string
	Dir         string // the data directory
	Version     string // of this build
}

// For returns the same for another account.
func (l *Local) For(account string) Service {
	other := *l
	other.AccountName = account
	return &other
}

// Grant implements Credits.
func (l *Local) Grant(ctx context.Context, key string, amount int64, terms ledger.Terms) (ledger.Lot, error) {
	return l.Node.Engine.Grant(ctx, engine.GrantRequest{Account: l.AccountName, Key: key, Amount: amount, Terms: terms})
}

// VoidLot implements Credits.
func (l *Local) VoidLot(ctx context.Context, lot, note string) (ledger.Lot, error) {
	return l.Node.Engine.VoidLot(ctx, l.AccountName, lot, note)
}

// Adjust implements Credits.
func (l *Local) Adjust(ctx context.Context, run, key string, amount int64, note string) ([]*ledger.Entry, error) {
	return l.Node.Engine.Adjust(ctx, l.AccountName, run, key, amount, note)
}

// PutFile implements Files.
func (l *Local) PutFile(ctx context.Context, r io.Reader, name string) (action.FileInfo, error) {
	return l.Node.Files.Put(ctx, l.AccountName, r, name, "")
}

// ReadFile implements Files.
func (l *Local) ReadFile(ctx context.Context, hash string, from, n int64) (io.ReadCloser, error) {
	if n < 0 {
		f, err := l.Node.Files.Open(ctx, l.AccountName, hash)
		if err != nil {
			return nil, err
		}
		return f, nil
	}
	r, _, err := l.Node.Files.Part(ctx, l.AccountName, hash, from, n)
	return r, err
}

// FindFile implements Files.
func (l *Local) FindFile(ctx context.Context, begin string) (File, error) {
	e, err := l.Node.Files.Find(ctx, l.AccountName, begin)
	if err != nil {
		return File{}, err
	}
	runs, err := l.Node.Engine.Files().NamedBy(ctx, l.AccountName, e.Info.Hash, MaxRuns)
	return File{e, runs}, err
}

// ListFiles implements Files.
func (l *Local) ListFiles(ctx context.Context, q blob.Query) ([]blob.Entry, error) {
	return l.Node.Files.List(ctx, l.AccountName, q)
}

// RemoveFile implements Files.
func (l *Local) RemoveFile(ctx context.Context, hash string) error {
	return l.Node.Engine.Files().RemoveFile(ctx, l.AccountName, hash)
}

// CleanFiles implements Files.
func (l *Local) CleanFiles(ctx context.Context, dry bool) (retention.Removed, error) {
	return l.Node.Engine.Clean(ctx, dry)
}
