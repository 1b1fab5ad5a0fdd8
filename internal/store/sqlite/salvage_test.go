// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sqlite

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/sqlite/wal"
)

// The first image that Salvage makes has everything committed before the damage, or
// everything if there is no damage. Salvage does not change the original store.
func TestFirstImageEndsAtTheDamage(t *testing.T) {
	const runs = 20
	image := killed(t, runs)
	st, err := wal.Read(filepath.Join(image, "roux.db"))
	if err != nil || st.Frames < runs {
		t.Fatalf("%+v, %v", st, err)
	}
	before := -1
	for _, c := range []struct {
		name        string
		frame       int // which is hit; 0 = none
		least, most int
	}{
		{"no damage", 0, runs, runs},
		{"the last commit", st.Frames, runs - 1, runs - 1},
		{"in the middle", st.Frames / 2, 0, runs - 1},
		{"the first frame", 1, 0, 0},
	} {
		dir, to := copied(t, image), t.TempDir()
		log := filepath.Join(dir, "roux.db-wal")
		if c.frame > 0 {
			edit(t, log, wal.HeaderSize+int64(c.frame-1)*(wal.FrameHeader+pageSize)+wal.FrameHeader+100, 1, func(b []byte) { b[0] ^= 1 })
		}
		was, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		images, err := wal.Salvage(ctx, dir, to)
		if err != nil || len(images) != 3 || images[0].Way != "up to the damage" {
			t.Fatalf("%s: %+v, %v", c.name, images, err)
		}
		if is, err := os.ReadFile(log); err != nil || !bytes.Equal(is, was) {
			t.Errorf("%s: the log was changed, %v", c.name, err)
		}
		n := 0
		if s, err := Open(ctx, Options{Dir: images[0].Dir}); err == nil {
			heads, err := s.List(ctx, store.Query{Account: "acme", Limit: 500})
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			for _, h := range heads {
				if _, err := s.Load(ctx, h.Key); err != nil {
					t.Errorf("%s: %v", c.name, err)
				}
			}
			n = len(heads)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		} else if c.least > 0 {
			t.Errorf("%s: %v", c.name, err)
		}
		if n < c.least || n > c.most || before >= 0 && n > before {
			t.Errorf("%s: the first image has %d runs, want %d to %d, and no more than with less damage", c.name, n, c.least, c.most)
		}
		before = n
	}
}

// The index of the log begins with two copies of its header. If they differ, the index
// is ignored, and the log is judged as if there were no index.
func TestATornIndexSaysNothing(t *testing.T) {
	image := killed(t, 20)
	st, err := wal.Read(filepath.Join(image, "roux.db"))
	if err != nil {
		t.Fatal(err)
	}
	for frame := 1; frame <= st.Frames; frame++ {
		torn := copied(t, image)
		edit(t, filepath.Join(torn, "roux.db-shm"), 48+20, 1, func(b []byte) { b[0] ^= 1 })
		none := copied(t, image, "roux.db-shm")
		var got [2]wal.State
		for i, dir := range []string{torn, none} {
			edit(t, filepath.Join(dir, "roux.db-wal"), wal.HeaderSize+int64(frame-1)*(wal.FrameHeader+pageSize)+wal.FrameHeader+100, 1, func(b []byte) { b[0] ^= 1 })
			if got[i], err = wal.Read(filepath.Join(dir, "roux.db")); err != nil {
				t.Fatal(err)
			}
		}
		if got[0] != got[1] {
			t.Errorf("frame %d is hit: with a torn index %+v, without one %+v", frame, got[0], got[1])
		}
		frame += st.Frames / 20
	}
}

// The last commit of a log is torn, and one bit before it is flipped. One of the images
// is then a sound store with all runs but those of the damaged and the torn commit.
func TestImagesOfATornLog(t *testing.T) {
	const runs = 20
	image := copiedLog(t, killed(t, runs))
	frame, n, commits := framesOf(t, image)
	early := commits[len(commits)-10] - 1 // a later commit has its page, too
	edit(t, filepath.Join(image, "roux.db-wal"), wal.HeaderSize+(n-3)*frame+512, 512, func(b []byte) { clear(b) })
	for name, at := range map[string]struct {
		frame, offset int64
		bit           byte
	}{
		"a page":              {early, 100, 1},
		"a page's number":     {early, 0, 0x40},
		"salts":               {early, 9, 1},
		"a checksum":          {early, 17, 1},
		"the end of a commit": {commits[len(commits)/2] - 1, 4, 0x40},
		"the header":          {-1, wal.HeaderSize - 16, 1}, // before the first frame
	} {
		dir, to := copiedLog(t, image), t.TempDir()
		offset := wal.HeaderSize + at.frame*frame + at.offset
		if at.frame < 0 {
			offset = at.offset
		}
		edit(t, filepath.Join(dir, "roux.db-wal"), offset, 1, func(b []byte) { b[0] ^= at.bit })
		images, err := wal.Salvage(ctx, dir, to)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		best := 0
		var said []string
		for _, im := range images {
			good, complaints := soundIn(im.Dir)
			said = append(said, complaints...)
			if len(complaints) == 0 {
				best = max(best, good)
			}
		}
		if best < runs-1 {
			t.Errorf("%s: the best sound image has %d of %d runs: %q", name, best, runs-1, said)
		}
	}
}

// soundIn returns how many runs of a store have all their events, and the complaints of
// Check.
func soundIn(dir string) (good int, complaints []string) {
	s, err := Open(ctx, Options{Dir: dir, cold: true})
	if err != nil {
		return 0, []string{err.Error()}
	}
	defer func() { _ = s.Close() }()
	_, complaints, err = s.Check(ctx)
	heads, lerr := s.List(ctx, store.Query{Account: "acme", Limit: 500})
	if err = errors.Join(err, lerr); err != nil {
		return 0, []string{err.Error()}
	}
	for _, h := range heads {
		if _, err := s.Load(ctx, h.Key); err == nil {
			good++
		}
	}
	return good, complaints
}
