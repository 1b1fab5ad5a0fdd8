// SPDX-License-Identifier: Apache-2.0

package wal

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
)

// The page size of a log without a header is taken from the database. The largest page
// size, 65536, does not fit into the 16 bits of its field and is stored as 1.
func TestPagesOfALogWithoutAHeader(t *testing.T) {
	for named, want := range map[uint16]int{1: 65536, 4096: 4096, 32768: 32768, 512: 512, 0: 0, 2: 0, 256: 0, 4097: 0} {
		dir := t.TempDir()
		head := make([]byte, 100)
		binary.BigEndian.PutUint16(head[16:], named)
		log := make([]byte, HeaderSize+2*(FrameHeader+max(want, 512)))
		for name, data := range map[string][]byte{"db": head, "log": log} {
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		db, err := os.Open(filepath.Join(dir, "db"))
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		f, err := os.Open(filepath.Join(dir, "log"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		w := &Log{f: f}
		known, err := w.Guess(db)
		if err != nil || known != (want > 0) || known && (w.Page != want || w.Frames != 2) {
			t.Errorf("%d: pages of %d bytes, %d frames, known %v, %v; want %d", named, w.Page, w.Frames, known, err, want)
		}
	}
}
