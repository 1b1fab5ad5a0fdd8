// SPDX-License-Identifier: Apache-2.0

// Package bundle writes one run into one file and reads it back: a ZIP archive of its
// plan, its journal as it is stored, and a manifest with checksums of everything.
// Values that the recipe marks as writeOnly are left out.
//
// It decides what a bundle contains and whether a bundle is consistent. It trusts
// nothing in a bundle: it applies limits before it unpacks anything, checks the plan,
// and replays the journal as every command will. It decides neither who may read a run
// nor where a file is stored.
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

// Ext is the file name extension of bundles.
const Ext = ".roux.zip"

// The versions of the format.
const (
	Version         = 2
	UnhashedVersion = 1 // of earlier releases, without checksums
)

// ChecksumBytes is the length of the comment that ends a bundle: the SHA-256 of all
// bytes before it, in hexadecimal.
const ChecksumBytes = 2 * sha256.Size

// The members of a bundle: manifest.json, plan.json, the journal as it is stored
// (journal.bin), and the journal as public events (events.jsonl). The last one is for
// people and other programs; Read ignores it.
const (
	format = "roux-run"

	// The largest unpacked sizes.
	maxPlan     = 64 << 20
	maxJournal  = 256 << 20
	maxEvents   = 1 << 30
	maxManifest = 64 << 10
	// The most bytes that are read to list the members. There are few, but the end of
	// the file is read twice, because it may contain a longer comment.
	maxListing = 256 << 10

	// Write stores a member uncompressed, and Read refuses it, if it would unpack to
	// more than bombBytes and more than bombRatio times its size.
	bombBytes = 8 << 20
	bombRatio = 200
)

// A Manifest describes the contents of a bundle.
type Manifest struct {
	Format   string `json:"format"`
	Version  int    `json:"version"`
	Run      string `json:"run"`
	Recipe   string `json:"recipe"`
	Status   string `json:"status"`
	Plan     string `json:"plan"` // hash
	Events   uint64 `json:"events"`
	Redacted bool   `json:"redacted"`
	Imported bool   `json:"imported,omitempty"` // the run was itself imported from a bundle
	// Members are the other members. Sum is the SHA-256 of this manifest without Sum.
	// With the comment of the file they show whether the bundle was changed, but not
	// by whom.
	Members map[string]Member `json:"members,omitempty"`
	Sum     string            `json:"sum,omitempty"`
}

// A Member is the manifest's entry for a member.
type Member struct {
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Checksum is the checksum of the manifest itself.
func (m Manifest) Checksum() (string, error) { //nolint:gocritic // a copy is what is changed
	m.Sum = ""
	text, err := json.Marshal(m)
	if err != nil {
		return "", err
	}
	h := sha256.Sum256(text)
	return hex.EncodeToString(h[:]), nil
}

// NewManifest is the manifest of a run, without the fields that Write sets.
func NewManifest(head store.Head, redacted bool) Manifest {
	return Manifest{Format: format, Version: Version, Run: head.Run, Recipe: head.Recipe,
		Status: head.Status, Plan: plan.HashOf(head.PlanHash), Redacted: redacted, Imported: head.Imported()}
}

// Write writes a run as a bundle. With redact, every text that passed through the run
// is replaced. Values that the recipe marks as writeOnly are never included. A run
// that is too long is fault.ValueTooLarge.
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
	// The comment is written last, because it is the checksum of all bytes before it.
	end := &trailerWriter{w: w, hash: sha256.New()}
	z := zip.NewWriter(end)
	put := func(name string, data []byte) error {
		method := zip.Deflate
		if len(data) > bombBytes && shrinks(data) > bombRatio/2 {
			method = zip.Store // import would refuse it as a zip bomb
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
			return fault.New(fault.ValueTooLarge, "the journal of run %s is too large for a bundle; the limit is %s", head.Run, view.Bytes(maxJournal))
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

// shrinks is the ratio by which data shrinks when it is compressed.
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

// A trailerWriter passes all bytes on except the last ones, which seal replaces by the
// checksum of the bytes passed on.
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
