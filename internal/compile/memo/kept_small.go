// SPDX-License-Identifier: Apache-2.0

//go:build small

package memo

import "github.com/roux-engine/roux/internal/expr"

// A Memo keeps nothing: a small binary serves no editors.
type Memo struct{}

type key struct{}

func find[T any](_ *Memo, _ func() key, _ int, compute func() (T, error)) (T, error) {
	return compute()
}

func hash(kind, []byte, *expr.Env, string) key { return key{} }
