// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"bytes"
	"slices"

	"github.com/roux-engine/roux/internal/store/format"
)

// When a store is opened it reads its journal, and passes here the records of no run and
// what may have been such a record.

// BeginScan forgets what is known of the journal, which is about to be read.
func (f *Feed) BeginScan() {
	f.Discard()
	f.mu.Lock()
	f.pending, f.journal = nil, 0
	f.mu.Unlock()
	f.damaged, f.lost, f.skipped = map[uint32]uint64{}, false, map[string]uint64{}
}

// FoundRecord takes a record of no run.
func (f *Feed) FoundRecord(journal int64, r *format.Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pend(journal, r.Key, r.First, r.Last, bytes.Clone(r.Frames))
}

// FoundDamage takes a damaged record.
func (f *Feed) FoundDamage(r *format.Record) { f.damaged[r.Hash] = max(f.damaged[r.Hash], r.Last) }

// FoundLoss says that there are records of which nothing is known.
func (f *Feed) FoundLoss() { f.lost = true }

// EndScan drops the rows that the table has. It returns the rows of the journal that have
// the others.
func (f *Feed) EndScan() (keep []int64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	last := map[string]int64{}
	for i := range f.pending {
		account := f.pending[i].Account
		if _, known := last[account]; known {
			continue
		}
		r, err := f.stored(account)
		if err != nil {
			return nil, err
		}
		last[account] = r.Last
	}
	f.pending = slices.DeleteFunc(f.pending, func(p pendingRow) bool { return p.Last <= last[p.Account] })
	for i := range f.pending {
		keep = append(keep, f.pending[i].journal)
	}
	return keep, nil
}
