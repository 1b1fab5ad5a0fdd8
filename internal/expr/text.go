// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"maps"
	"slices"

	"github.com/roux-engine/roux/internal/jsonx"
)

// Text returns a value as a template shows it: a string as it is, everything else as JSON
// of at most limit bytes.
func Text(v any, limit int) (string, error) {
	if s, ok := v.(string); ok {
		return s, nil
	}
	if err := refuseLarge(v); err != nil {
		return "", err
	}
	b, ok := jsonx.AppendLimited(nil, v, limit)
	if !ok {
		return "", resultTooLarge(MaxResult)
	}
	return string(b), nil
}

// refuseLarge refuses a value that contains a large one, whose text is not in memory.
func refuseLarge(v any) error {
	switch x := v.(type) {
	case jsonx.Large:
		return &contentError{x}
	case []any:
		for _, e := range x {
			if err := refuseLarge(e); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(x)) {
			if err := refuseLarge(x[k]); err != nil {
				return err
			}
		}
	}
	return nil
}
