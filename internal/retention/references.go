// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
)

const (
	hashPrefix = "sha256_"
	// maxRemembered bounds how many written references the committer remembers.
	maxRemembered = 100_000
	// maxTouched bounds the files in the values of one request.
	maxTouched = 10_000
)

// References finds the files that transitions name, so that the store can record them.
// It does not decode events: anything that looks like the hash of a file counts as one,
// which at worst keeps a file too long. Only one goroutine, the committer, may use it
// at a time.
type References struct {
	written map[reference]struct{}
}

type reference struct {
	key  store.Key
	hash string
}

// SetFiles sets the Files of every transition of a batch.
func (refs *References) SetFiles(batch []store.Transition) {
	for i := range batch {
		t := &batch[i]
		t.Files = filesNamed(t, func(hash []byte) bool {
			_, known := refs.written[reference{t.Key, string(hash)}]
			return known
		})
	}
}

// FilesNamed returns the files that a transition names, for its Files.
func FilesNamed(t *store.Transition) []string {
	return filesNamed(t, func([]byte) bool { return false })
}

func filesNamed(t *store.Transition, known func(hash []byte) bool) (files []string) {
	find := func(hash []byte) {
		if !known(hash) {
			files = append(files, string(hash))
		}
	}
	EachHash(t.Frames, find)
	for i := range t.Plans {
		EachHash(t.Plans[i].Data, find)
	}
	slices.Sort(files)
	return slices.Compact(files)
}

// Committed remembers what the store has recorded, so that a run which names a file in
// every event writes the reference once.
func (refs *References) Committed(verdicts []store.Verdict, batch []store.Transition) {
	if len(refs.written) > maxRemembered || refs.written == nil {
		refs.written = map[reference]struct{}{}
	}
	for i := range batch {
		for _, hash := range batch[i].Files {
			if verdicts[i].Err == nil {
				refs.written[reference{batch[i].Key, hash}] = struct{}{}
			}
		}
	}
}

// EachHash calls fn for everything in data that looks like the hash of a file.
func EachHash(data []byte, fn func(hash []byte)) {
	const mark = len(hashPrefix) - 1 // search for its underscore, because it is rare
	for at := mark; ; {
		i := -1
		if at < len(data) {
			i = bytes.IndexByte(data[at:], hashPrefix[mark])
		}
		if i < 0 {
			return
		}
		at += i + 1
		if string(data[at-len(hashPrefix):at]) == hashPrefix && hexDigits(data[at:]) == 64 {
			fn(data[at-len(hashPrefix) : at+64])
			at += 64 + mark
		}
	}
}

// hexDigits returns how many of the first 64 bytes of b are lower-case hexadecimal
// digits, up to the first other byte.
func hexDigits(b []byte) int {
	for i := range min(len(b), 64) {
		if c := b[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return i
		}
	}
	return min(len(b), 64)
}

// BlockRemoval keeps RemoveFile from removing files until AllowRemoval. Call it before
// Touch, and AllowRemoval once the transition that names the files is committed.
func (c *Cleaner) BlockRemoval() { c.removal.RLock() }

// AllowRemoval ends what BlockRemoval began.
func (c *Cleaner) AllowRemoval() { c.removal.RUnlock() }

// Touch renews the files that a request names before the request is accepted, so that
// none is removed before the commit that names it. Input files must exist; hashes in
// values and in a plan need not be hashes of files.
func (c *Cleaner) Touch(ctx context.Context, account string, files []journal.File, values ...any) error {
	if c.Blobs == nil {
		return nil
	}
	for i := range files {
		if err := c.Blobs.Touch(ctx, account, files[i].Hash); err != nil {
			return err
		}
	}
	hashes := map[string]struct{}{}
	for _, v := range values {
		collectHashes(v, hashes)
	}
	for hash := range hashes {
		if err := c.Blobs.Touch(ctx, account, hash); err != nil && !errors.Is(err, fault.FileNotFound) {
			return err
		}
	}
	return nil
}

func collectHashes(v any, into map[string]struct{}) {
	if len(into) >= maxTouched {
		return
	}
	switch v := v.(type) {
	case []byte:
		EachHash(v, func(hash []byte) { into[string(hash)] = struct{}{} })
	case string:
		if strings.Contains(v, hashPrefix) {
			collectHashes([]byte(v), into)
		}
	case []any:
		for _, el := range v {
			collectHashes(el, into)
		}
	case map[string]any:
		for k, el := range v {
			collectHashes(k, into)
			collectHashes(el, into)
		}
	}
}
