// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"iter"
	"net/http"
)

// Cache has the results of actions that are kept for later steps of the account.
type Cache struct{ c *Client }

// CachedAction is how many results of a version of an action are kept.
type CachedAction struct {
	Action  string `json:"action"`
	Version string `json:"version"`
	Results int64  `json:"results"`
	Bytes   int64  `json:"bytes"`
}

// List returns the actions of which results are kept.
func (k *Cache) List(ctx context.Context) iter.Seq2[CachedAction, error] {
	return list[CachedAction](ctx, k.c, func() *call { return at(http.MethodGet, "v1", "cache") })
}

// Clear removes the results that are kept, and returns how many: those of an action, of one of its
// versions (name@version), or of all if it is "".
func (k *Cache) Clear(ctx context.Context, action string) (int, error) {
	cl := at(http.MethodDelete, "v1", "cache")
	if action != "" {
		cl.with("action", action)
	}
	var out struct {
		Removed int `json:"removed"`
	}
	_, err := k.c.do(ctx, cl, &out)
	return out.Removed, err
}
