// SPDX-License-Identifier: Apache-2.0

package format

import (
	"bytes"
	"testing"

	"github.com/roux-engine/roux/internal/store"
)

func sampleRow(n int) (data []byte, want []Record) {
	var batch []*store.Transition
	for i := range n {
		batch = append(batch, &store.Transition{
			Key: runKey(i), First: uint64(i + 2), Last: uint64(2*i + 3), Frames: bytes.Repeat([]byte{byte('a' + i)}, 5+3*i),
		})
		want = append(want, Record{
			Key: runKey(i), First: uint64(i + 2), Last: uint64(2*i + 3), Frames: batch[i].Frames,
		})
	}
	data = AppendRow([]byte("before"), batch, func(int) bool { return false }, func(i int, off, n uint32) { want[i].Off, want[i].N = off, n })
	return data[len("before"):], want
}

func TestRowRoundTrip(t *testing.T) {
	for _, n := range []int{1, 2, 50} {
		data, want := sampleRow(n)
		i := 0
		lost := ParseRow(data, nil, func(r Record) {
			w := want[i]
			if r.Damaged != "" || r.Key != w.Key || r.First != w.First || r.Last != w.Last ||
				r.Off != w.Off || r.N != w.N || !bytes.Equal(r.Frames, w.Frames) {
				t.Fatalf("record %d = %+v, want %+v", i, r, w)
			}
			i++
		})
		if lost >= 0 || i != n {
			t.Fatalf("%d of %d records, lost from %d", i, n, lost)
		}
	}
}

// TestF20_EveryBitOfARow: any one damaged bit costs at most one record, and the run that
// lost it is known.
func TestF20_EveryBitOfARow(t *testing.T) {
	const n = 4
	row, want := sampleRow(n)
	for at := range row {
		for bit := range 8 {
			data := bytes.Clone(row)
			data[at] ^= 1 << bit
			i, damaged := 0, 0
			lost := ParseRow(data, nil, func(r Record) {
				w := want[i]
				i++
				if r.Damaged != "" {
					damaged++
					if r.Hash != KeyHash(w.Key) || r.First != w.First || r.Last != w.Last || r.Off != w.Off {
						t.Fatalf("bit %d of byte %d: damage is blamed on %+v, want %+v", bit, at, r, w)
					}
					if at < int(w.Off) || at >= int(w.Off+w.N) {
						t.Fatalf("bit %d of byte %d: record %d counts as damaged", bit, at, i-1)
					}
					return
				}
				if r.Key != w.Key || !bytes.Equal(r.Frames, w.Frames) {
					t.Fatalf("bit %d of byte %d: record = %+v, want %+v", bit, at, r, w)
				}
			})
			if lost >= 0 || i != n || damaged > 1 {
				t.Fatalf("bit %d of byte %d: %d records, %d damaged, lost from %d", bit, at, i, damaged, lost)
			}
			if inRecords := at >= int(want[0].Off); inRecords != (damaged == 1) {
				t.Fatalf("bit %d of byte %d: %d damaged", bit, at, damaged)
			}
		}
	}
}

// FuzzParseRow: parsing any bytes ends and never invents a record.
func FuzzParseRow(f *testing.F) {
	row, _ := sampleRow(3)
	f.Add(row)
	f.Add(row[:40])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		lost := ParseRow(data, nil, func(r Record) {
			if r.Damaged == "" && (int(r.Off)+int(r.N) > len(data) || r.Last < r.First && r.Last != r.First-1) {
				t.Fatalf("record %+v of %d bytes", r, len(data))
			}
		})
		if lost > len(data)+RowHead {
			t.Fatalf("lost from %d of %d bytes", lost, len(data))
		}
	})
}
