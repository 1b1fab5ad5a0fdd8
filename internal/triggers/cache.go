// SPDX-License-Identifier: Apache-2.0

package triggers

import (
	"context"
	"net/http"

	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/rest"
	"github.com/roux-engine/roux/internal/resultcache"
)

// RegisterCache registers what can be done with the results that steps use again.
func RegisterCache(rt *rest.Router, cache func() *resultcache.Cache) {
	list := rest.Op("cache-list", http.MethodGet, "/v1/cache", "List the actions of which results are kept for later steps, with how many")
	rest.Handle(rt, list, rest.Needs(access.RunsRead), func(ctx context.Context, _ *struct{}) (*rest.Listed[resultcache.ActionUsage], error) {
		all, err := cache().Usage(ctx, rest.Account(ctx))
		if err != nil {
			return nil, err
		}
		return rest.PageOf(ctx, rt, "", "", all), nil
	})
	remove := rest.Op("cache-clear", http.MethodDelete, "/v1/cache", "Remove the results that are kept for later steps, of all actions or of one")
	remove.Description = "Runs that have one keep it. See docs/cache.md."
	rest.Handle(rt, remove, rest.Needs(access.RunsControl), func(ctx context.Context, in *clearIn) (*cleared, error) {
		n, err := cache().Clear(ctx, rest.Account(ctx), in.Action)
		return &cleared{Body: Cleared{Removed: n}}, err
	})
}

type clearIn struct {
	Action string `query:"action" maxLength:"100" doc:"Name of the action, for all its versions, or name@version. Default: all actions."`
}

// Cleared says how many results were removed.
type Cleared struct {
	Removed int `json:"removed"`
}

type cleared struct{ Body Cleared }
