// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/spell"
	"github.com/roux-engine/roux/internal/store"
)

// A schedule and a trigger each have a name that is unique in its account and kind.

// CheckName refuses names that could be taken for ids, which begin with prefix, or that do not fit
// in a URL.
func CheckName(name, prefix string) error {
	ok := name != "" && len(name) <= maxName
	for i, c := range name {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || i > 0 && (c == '-' || c == '_' || c == '.'))
	}
	if !ok || len(name) > len(prefix) && name[:len(prefix)] == prefix {
		return fault.New(fault.RequestInvalid, "name: want 1 to %d letters, digits, '-', '_' and '.', and not %s at the beginning", maxName, prefix)
	}
	return nil
}

// NotFound adds to the error of a record that was not found by ref what it is and which name is
// like it. Other errors stay as they are.
func NotFound(ctx context.Context, records Records, account, kind, ref string, err error) error {
	if fault.CodeOf(err) != fault.RecordNotFound {
		return err
	}
	e := fault.New(fault.RecordNotFound, "the account has no such %s", kind)
	list, _, err := records.Records(ctx, store.RecordQuery{Account: account, Kind: kind, Named: true, KeysOnly: true, Limit: 500})
	if err != nil {
		return e // the suggestion is missing, and nothing else
	}
	names := make([]string, len(list))
	for i := range list {
		names[i] = list[i].Name
	}
	if near := spell.Nearest(ref, names); near != "" {
		e.Remedy = "Did you mean " + near + "?"
	}
	return e
}
