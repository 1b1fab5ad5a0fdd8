// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"io"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonx"
)

// fetch replaces the references in an input by the texts and lists they refer to, so
// that an action never sees a reference. input and result are canonical JSON. The result
// has at most MaxLarge bytes, which is checked before the files are read.
func fetch(ctx context.Context, files action.Files, input []byte) ([]byte, error) {
	return (&fetcher{ctx: ctx, files: files, read: map[string][]byte{}}).fill(input)
}

// A fetcher reads each file of an input once, however often the input refers to
// it.
type fetcher struct {
	ctx   context.Context
	files action.Files
	read  map[string][]byte
}

// fill returns input with its references replaced by their values.
func (f *fetcher) fill(input []byte) ([]byte, error) {
	total := int64(len(input))
	for rest := input; ; {
		ref, _, end, ok := jsonx.NextLarge(rest)
		if !ok {
			break
		}
		if total += ref.Bytes; total > MaxLarge {
			return nil, inputTooLarge()
		}
		rest = rest[end:]
	}
	out := make([]byte, 0, total)
	for {
		ref, start, end, ok := jsonx.NextLarge(input)
		if !ok {
			break
		}
		content, known := f.read[ref.Hash]
		if !known {
			var err error
			if content, err = contentOf(f.ctx, f.files, ref); err != nil {
				return nil, err
			}
			// References inside the list were checked to belong to a run of this tree.
			if ref.Refs {
				if content, err = f.fill(content); err != nil {
					return nil, err
				}
			}
			f.read[ref.Hash] = content
		}
		out = append(append(out, input[:start]...), content...)
		input = input[end:]
		if len(out)+len(input) > MaxLarge {
			return nil, inputTooLarge()
		}
	}
	return append(out, input...), nil
}

// contentOf reads a value as canonical JSON. The store verifies the hash of the bytes;
// a list was written in canonical form.
func contentOf(ctx context.Context, files action.Files, ref jsonx.Large) ([]byte, error) {
	if files == nil {
		return nil, fault.New(fault.FileNotFound, "a part of the input is in file %s, and there are no files here", ref.Hash)
	}
	f, err := files.Open(ctx, ref.Hash)
	if err != nil {
		return nil, fault.Wrap(fault.CodeOf(err), err, "a %s of the input cannot be read: %s", ref.Type(), fault.Message(err))
	}
	defer func() { _ = f.Close() }()
	data := make([]byte, ref.Bytes+1)
	n, err := io.ReadFull(f, data)
	switch {
	case err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return nil, err
	case err == nil || int64(n) != ref.Bytes:
		return nil, fault.New(fault.FileInvalid, "file %s no longer has the %d bytes that it had when it was made", ref.Hash, ref.Bytes)
	}
	if ref.List {
		return data[:n], nil
	}
	return jsonx.Canonical(string(data[:n]))
}

func inputTooLarge() error {
	return fault.New(fault.ValueTooLarge, "the input has more than %d bytes with what it refers to: pass a file, or less at a time", MaxLarge)
}
