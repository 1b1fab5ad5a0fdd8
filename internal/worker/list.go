// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"maps"
	"slices"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonx"
)

// takeLists removes from an input the lists that the action streams and that are stored
// in files, and returns the rest and those lists.
func takeLists(streams []string, input []byte) ([]byte, map[string]jsonx.Large, error) {
	if len(streams) == 0 {
		return input, nil, nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(input, &fields); err != nil {
		return nil, nil, fault.Wrap(fault.InputInvalid, err, "the input is no JSON object: %v", err)
	}
	var lists map[string]jsonx.Large
	for _, name := range streams {
		raw := fields[name]
		if ref, start, end, ok := jsonx.NextLarge(raw); ok && ref.List && start == 0 && end == len(raw) {
			if lists == nil {
				lists = map[string]jsonx.Large{}
			}
			lists[name] = ref
			delete(fields, name)
		}
	}
	if lists == nil {
		return input, nil, nil
	}
	// The fields are canonical JSON already; only their order must be restored.
	rest := []byte{'{'}
	for i, name := range slices.SortedFunc(maps.Keys(fields), jsonx.CompareNames) {
		if i > 0 {
			rest = append(rest, ',')
		}
		key, err := jsonx.Canonical(name)
		if err != nil {
			return nil, nil, fault.Wrap(fault.InputInvalid, err, "%v", err)
		}
		rest = append(append(append(rest, key...), ':'), fields[name]...)
	}
	return append(rest, '}'), lists, nil
}

// restoreLists adds the references of lists to an input again, for a contract that
// checks types.
func restoreLists(v any, lists map[string]jsonx.Large) any {
	fields, ok := v.(map[string]any)
	if !ok {
		return v
	}
	fields = maps.Clone(fields)
	for name, ref := range lists {
		fields[name] = ref
	}
	return fields
}

// A list implements [action.List] on a file.
type list struct {
	files action.Files
	ref   jsonx.Large
}

// Len implements [action.List].
func (l *list) Len() int64 { return l.ref.Size }

// Items implements [action.List]. References inside elements are replaced by
// their values.
func (l *list) Items(ctx context.Context) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		if err := l.each(ctx, func(item json.RawMessage) bool { return yield(item, nil) }); err != nil {
			yield(nil, err)
		}
	}
}

// each calls use for each element until use returns false.
func (l *list) each(ctx context.Context, use func(json.RawMessage) bool) error {
	f, err := l.files.Open(ctx, l.ref.Hash)
	if err != nil {
		return fault.Wrap(fault.CodeOf(err), err, "a list of the input cannot be read: %s", fault.Message(err))
	}
	defer func() { _ = f.Close() }()
	dec := json.NewDecoder(bufio.NewReaderSize(f, 64<<10))
	if open, err := dec.Token(); err != nil || open != json.Delim('[') {
		return l.damaged(cmp.Or(err, errNoList))
	}
	n := int64(0)
	for ; dec.More(); n++ {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var item json.RawMessage
		if err := dec.Decode(&item); err != nil {
			return l.damaged(err)
		}
		if l.ref.Refs && jsonx.Reserved(item) {
			if item, err = fetch(ctx, l.files, item); err != nil {
				return fault.Wrap(fault.CodeOf(err), err, "element %d: %s", n, fault.Message(err))
			}
		}
		if !use(item) {
			return nil
		}
	}
	if _, err = dec.Token(); err == nil && n != l.ref.Size {
		err = errNoList
	}
	return l.damaged(err)
}

var errNoList = errors.New("it is another value")

// damaged returns the error for a file that no longer holds its list; nil if
// err is nil.
func (l *list) damaged(err error) error {
	var syntax *json.SyntaxError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errNoList), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &syntax):
		return fault.Wrap(fault.FileInvalid, err, "file %s no longer has the list that it had when it was made: %v", l.ref.Hash, err)
	}
	return err
}
