// SPDX-License-Identifier: Apache-2.0

// Package bundle writes one run into one file and reads it back: a ZIP archive of its
// plan, its journal as it is stored, and a manifest with checksums of everything. What
// the recipe marks as writeOnly is left out.
//
// It decides what a bundle holds and whether one holds together, and trusts nothing in
// it: limits before anything is unpacked, the plan checked, the journal folded as every
// command will. It never decides who may read a run, nor where a file lies.
package bundle

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash"
	"io"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

// Ext is how the names of bundles end.
const Ext = ".roux.zip"

// The versions of the form.
const (
	Version         = 2
	UnhashedVersion = 1 // of earlier releases, without checksums
)

// SealBytes is the length of the comment that ends a bundle: the SHA-256 of all bytes
// before it, in hexadecimal.
const ChecksumBytes = 2 * sha256.Size

// A bundle is a ZIP file that holds one run: manifest.json, plan.json, the journal as
// it is stored (journal.bin) and, for people and other programs, as public events
// (events.jsonl), which Read passes over.
const (
	format = "roux-run"

	// What a bundle may hold, unpacked.
	maxPlan     = 64 << 20
	maxJournal  = 256 << 20
	maxEvents   = 1 << 30
	maxManifest = 64 << 10
	// What is read to list its members, which are few: the end of the file is read
	// twice where a longer comment could stand.
	maxListing = 256 << 10

	// A member that unpacks to more than bombBytes and bombRatio times its size
	// is stored as it is by Write, and refused by Read.
	bombBytes = 8 << 20
	bombRatio = 200
)

// A Manifest says what a bundle holds.
type Manifest struct {
	Format   string `json:"format"`
	Version  int    `json:"version"`
	Run      string `json:"run"`
	Recipe   string `json:"recipe"`
	Status   string `json:"status"`
	Plan     string `json:"plan"` // hash
	Events   uint64 `json:"events"`
	Redacted bool   `json:"redacted"`
	Imported bool   `json:"imported,omitempty"` // it came in a bundle where it was exported
	// Members are the other members, and Sum the SHA-256 of this manifest without
	// it: with the comment of the file they tell what was changed, not who did it.
	Members map[string]Member `json:"members,omitempty"`
	Sum     string            `json:"sum,omitempty"`
}

// A Member is what the manifest says of one.
type Member struct {
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Checksum is that of the manifest itself.
func (m Manifest) Checksum() (string, error) { //nolint:gocritic // a copy is what is changed
	m.Sum = ""
	text, err := json.Marshal(m)
	if err != nil {
		return "", err
	}
	h := sha256.Sum256(text)
	return hex.EncodeToString(h[:]), nil
}

// NewManifest is the manifest of a run, without what the bundle itself decides.
func NewManifest(head store.Head, redacted bool) Manifest {
	return Manifest{Format: format, Version: Version, Run: head.Run, Recipe: head.Recipe,
		Status: head.Status, Plan: plan.HashOf(head.PlanHash), Redacted: redacted, Imported: head.Imported()}
}

// Write writes a run as a bundle. With redact each text that passed through the run is
// replaced; what the recipe marks as writeOnly never gets in. A run that is too long is
// fault.ValueTooLarge.
func Write(ctx context.Context, j store.Reader, head store.Head, w io.Writer, redact bool) error {
	p, err := store.LoadPlan(ctx, j, head)
	if err != nil {
		return err
	}
	text, err := p.Encode()
	if err != nil {
		return err
	}
	m := NewManifest(head, redact)
	m.Members = map[string]Member{}
	// What is written last stands last: the comment is the checksum of the rest.
	end := &trailerWriter{w: w, hash: sha256.New()}
	z := zip.NewWriter(end)
	put := func(name string, data []byte) error {
		method := zip.Deflate
		if len(data) > bombBytes && shrinks(data) > bombRatio/2 {
			method = zip.Store // import would take it for a bomb
		}
		h := sha256.Sum256(data)
		if name != "manifest.json" {
			m.Members[name] = Member{int64(len(data)), hex.EncodeToString(h[:])}
		}
		into, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: method})
		if err == nil {
			_, err = into.Write(data)
		}
		return err
	}
	if err := put("plan.json", text); err != nil {
		return err
	}
	var frames, lines bytes.Buffer
	mask := view.NewMask(p)
	err = store.EachEvent(ctx, j, head.Key, 0, func(ev *journal.Event) error {
		ev = mask.Event(ev)
		if redact {
			if ev, err = view.Redact(ev); err != nil {
				return err
			}
		}
		m.Events = ev.Seq
		if err := writeJSON(&lines, journal.Render(p, head.Run, ev), false); err != nil {
			return err
		}
		if frames.Len() > maxJournal || lines.Len() > maxEvents {
			return fault.New(fault.ValueTooLarge, "the journal of run %s is too large for a bundle, which takes %s", head.Run, view.Bytes(maxJournal))
		}
		_, err := frames.Write(journal.AppendFrame(nil, []journal.Event{*ev}))
		return err
	})
	if err != nil {
		return err
	}
	if err := errors.Join(put("journal.bin", frames.Bytes()), put("events.jsonl", lines.Bytes())); err != nil {
		return err
	}
	if m.Sum, err = m.Checksum(); err != nil {
		return err
	}
	var about bytes.Buffer
	if err := writeJSON(&about, m, true); err != nil {
		return err
	}
	if err := errors.Join(put("manifest.json", about.Bytes()), z.SetComment(strings.Repeat("0", ChecksumBytes)), z.Close()); err != nil {
		return err
	}
	return end.seal()
}

// shrinks says how many times smaller data is when it is packed.
func shrinks(data []byte) int64 {
	var packed countingWriter
	w, err := flate.NewWriter(&packed, flate.DefaultCompression)
	if err == nil {
		_, err = w.Write(data)
		err = errors.Join(err, w.Close())
	}
	if err != nil {
		return 0
	}
	return int64(len(data)) / max(packed.n, 1)
}

type countingWriter struct{ n int64 }

func (w *countingWriter) Write(p []byte) (int, error) {
	w.n += int64(len(p))
	return len(p), nil
}

// A sealer passes on all but the last bytes, in whose place seal puts the
// checksum of what it has passed on.
type trailerWriter struct {
	w    io.Writer
	hash hash.Hash
	held []byte
}

func (s *trailerWriter) Write(p []byte) (int, error) {
	s.held = append(s.held, p...)
	n := len(s.held) - ChecksumBytes
	if n <= 0 {
		return len(p), nil
	}
	_, _ = s.hash.Write(s.held[:n])
	if _, err := s.w.Write(s.held[:n]); err != nil {
		return 0, err
	}
	s.held = append(s.held[:0], s.held[n:]...)
	return len(p), nil
}

func (s *trailerWriter) seal() error {
	_, err := io.WriteString(s.w, hex.EncodeToString(s.hash.Sum(nil)))
	return err
}

// writeJSON writes one JSON value and a line break.
func writeJSON(w io.Writer, v any, indent bool) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if indent {
		enc.SetIndent("", "  ")
	}
	return enc.Encode(v)
}
