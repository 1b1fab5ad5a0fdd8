// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"maps"
	"slices"

	"github.com/roux-engine/roux/internal/jsonx"
)

// text is how a value appears in a template: a string as it is, everything else
// as JSON, within a limit of bytes.
func text(v any, limit int) (string, error) {
	if s, ok := v.(string); ok {
		return s, nil
	}
	if err := whole(v); err != nil {
		return "", err
	}
	b, ok := jsonx.AppendLimited(nil, v, limit)
	if !ok {
		return "", resultTooLarge(MaxResult)
	}
	return string(b), nil
}

// whole refuses a value that holds a large one: its text is not here.
func whole(v any) error {
	switch x := v.(type) {
	case jsonx.Large:
		return &reached{x}
	case []any:
		for _, e := range x {
			if err := whole(e); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(x)) {
			if err := whole(x[k]); err != nil {
				return err
			}
		}
	}
	return nil
}
