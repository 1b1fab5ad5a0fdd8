// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"bytes"
	"slices"

	"github.com/roux-engine/roux/internal/store/format"
)

// When a store is opened it reads its journal and gives this package the records that are of
// no run. Those of changes that are not in the table yet are kept.

// Begin forgets what is known of the journal, which is about to be read.
func (f *Feed) Begin() {
	f.Failed()
	f.mu.Lock()
	f.only, f.held = nil, 0
	f.mu.Unlock()
	f.damaged, f.lost, f.skipped = map[uint32]uint64{}, false, map[string]uint64{}
}

// Found takes a record of no run, which may belong to the caller.
func (f *Feed) Found(journal int64, r *format.Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.only = append(f.only, kept{recorded(r.Key, r.First, r.Last, bytes.Clone(r.Frames)), journal})
}

// Damaged takes a damaged record, which may be of changes.
func (f *Feed) Damaged(r *format.Record) { f.damaged[r.Hash] = max(f.damaged[r.Hash], r.Last) }

// Lost says that there are records of which nothing is known.
func (f *Feed) Lost() { f.lost = true }

// End drops the rows that the table has. It returns the rows of the journal that are kept
// for the others.
func (f *Feed) End() (keep []int64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ends := map[string]int64{}
	for i := range f.only {
		account := f.only[i].Account
		if _, known := ends[account]; known {
			continue
		}
		r, err := f.last(account)
		if err != nil {
			return nil, err
		}
		ends[account] = r.Last
	}
	f.only = slices.DeleteFunc(f.only, func(k kept) bool { return k.Last <= ends[k.Account] })
	for i := range f.only {
		keep = append(keep, f.only[i].journal)
	}
	return keep, nil
}
