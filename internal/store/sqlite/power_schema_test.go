// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sqlite

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/format"
)

// F33, F46: the power fails at any moment of a migration from the schema of an earlier
// release. The next start opens the store, with all runs.
func TestF33_PowerCutsInAMigration(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	epoch := own(t, s)
	compacted, live := startOf(epoch, runKey(0), "1"), startOf(epoch, runKey(1), "1")
	compacted.Compaction = &store.Compaction{First: 1, Last: 1, Chunk: bytes.Repeat([]byte("1"), format.MaxPiece+1)} // packs came later
	mustCommit(t, s, compacted, live)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	toFirstSchema(t, dir)
	base, err := readImage(dir)
	if err != nil {
		t.Fatal(err)
	}
	tape := newTape(dir, sortedKeys(base))
	ids := map[string]int{}
	for name, id := range tape.names {
		ids[name] = id
	}
	s, err = Open(ctx, Options{Dir: dir, vfs: useDisk(&disk{tape: tape}), cold: true})
	useDisk(nil)
	if err != nil {
		t.Fatal(err)
	}
	tape.stop()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	writes, versions := 0, map[int64]int{}
	for _, o := range tape.ops {
		if o.kind == opWrite {
			writes++
		}
	}
	dice := rand.New(rand.NewPCG(33, 46))
	p := newPlatter(tape, base, ids)
	images := imageDir(t)
	step := 3 // one migration has many possible cuts
	switch {
	case os.Getenv("ROUX_LONG") != "":
		step = 1
	case testing.Short():
		step = 5
	}
	for cut := 0; cut <= len(tape.ops); cut += step {
		p.advance(cut)
		for _, f := range fates {
			name, image := fmt.Sprintf("%s, cut %d of %d", f.name, cut, len(tape.ops)), p.image(f, dice)
			for _, look := range []func(dir string) error{
				func(dir string) error { // it leaves no log, so this is a directory of its own
					var version int64
					db := rawDB(t, dir)
					err := db.QueryRow(`SELECT max(version_id) FROM goose_db_version WHERE is_applied`).Scan(&version)
					versions[version]++
					return errors.Join(err, db.Close())
				},
				usableAfterCut,
			} {
				dir := filepath.Join(images, name)
				err := os.Mkdir(dir, 0o700)
				if err == nil {
					err = writeImage(dir, image)
				}
				if err == nil {
					err = look(dir)
				}
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				_ = os.RemoveAll(dir)
			}
		}
	}
	if writes < 10 || len(versions) != schemaVersion {
		t.Errorf("cuts through %d writes found the schemas %v; want each of %d", writes, versions, schemaVersion)
	}
}

// usableAfterCut opens what a cut left and uses it.
func usableAfterCut(dir string) error {
	s, err := Open(ctx, Options{Dir: dir, cold: true})
	if err != nil {
		return err
	}
	defer s.Close()
	if wrong, err := complaintsOf(ctx, s); err != nil || wrong != "" {
		return fmt.Errorf("the file is damaged: %s %w", wrong, err)
	}
	epoch, err := s.Own(ctx)
	if err != nil {
		return err
	}
	verdicts, err := s.Commit(ctx, []store.Transition{{Key: runKey(1), Epoch: epoch, Compaction: &store.Compaction{First: 1, Last: 1, Chunk: []byte("1")}}})
	if err != nil || verdicts[0].Err != nil {
		return fmt.Errorf("compaction: %w, %+v", err, verdicts)
	}
	for i := range 2 {
		saved, err := s.Load(ctx, runKey(i))
		if err != nil || saved.Chunked != 1 || len(saved.Tail) == 0 {
			return fmt.Errorf("Load of run %d = %+v, %w", i, saved, err)
		}
	}
	return nil
}
