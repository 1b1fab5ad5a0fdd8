// SPDX-License-Identifier: Apache-2.0

package format

import (
	"testing"

	"github.com/roux-engine/roux/internal/store"
)

// FuzzEachPiece: EachPiece refuses bytes that are not a pack, and never reads past
// their end.
func FuzzEachPiece(f *testing.F) {
	pack := []byte{packVersion}
	for i := range 3 {
		pack = appendPiece(pack, runKey(i), &store.Compaction{First: 1, Last: 9, Chunk: []byte("frames"), Format: 300, State: []byte("s")})
	}
	f.Add(pack)
	f.Add(pack[:len(pack)-3])
	f.Fuzz(func(t *testing.T, data []byte) {
		back := []byte{packVersion}
		err := EachPiece(data, func(p *Piece, raw []byte) bool {
			if p.Last < p.First {
				return true // it cannot be written
			}
			back = append(back, raw...)
			return true
		})
		if err == nil && len(back) > len(data) {
			t.Fatalf("%d bytes of pieces in %d", len(back), len(data))
		}
	})
}
