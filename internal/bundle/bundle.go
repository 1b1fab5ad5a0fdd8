// SPDX-License-Identifier: Apache-2.0

// Package bundle writes a run, with the runs below it, into one file and reads it back: a
// ZIP archive of plans, journals as they are stored, and a manifest with checksums of
// everything. Values that the recipes mark as writeOnly are left out.
//
// It decides what a bundle contains and whether a bundle is consistent. It trusts
// nothing in a bundle: it applies limits before it unpacks anything, checks the plan,
// and replays the journal as every command will. It decides neither who may read a run
// nor where a file is stored.
package bundle

import (
	"compress/flate"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash"
	"io"
)

// Ext is the file name extension of bundles.
const Ext = ".roux.zip"

// The versions of the format.
const (
	Version         = 2
	TreeVersion     = 3 // of a run whose recipe runs other recipes
	UnhashedVersion = 1 // of earlier releases, without checksums
)

// ChecksumBytes is the length of the comment that ends a bundle: the SHA-256 of all
// bytes before it, in hexadecimal.
const ChecksumBytes = 2 * sha256.Size

// The members of a bundle: manifest.json, plan.json, the journal as it is stored
// (journal.bin), and the journal as public events (events.jsonl). The last one is for
// people and other programs; Read ignores it. A bundle of TreeVersion has three more: the
// plans of the recipes that steps run (plans.jsonl), a line about each run below, parents
// first (runs.jsonl), and their journals in the same order (runs.bin).
const (
	format = "roux-run"

	// The largest unpacked sizes.
	maxPlan     = 64 << 20
	maxJournal  = 256 << 20
	maxEvents   = 1 << 30
	maxRuns     = 64 << 20 // runs.jsonl
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
	Runs     int    `json:"runs,omitempty"` // that are below it
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
