// SPDX-License-Identifier: Apache-2.0

package triggers

import (
	"context"
	"net/http"

	"github.com/roux-engine/roux/internal/jobs"
	"github.com/roux-engine/roux/internal/rest"
)

// RegisterProviders registers what services that carry out jobs report to (X132). Their signature
// is their key.
func RegisterProviders(rt *rest.Router, keeper *jobs.Keeper) {
	op := rest.Op("providers-webhook", http.MethodPost, "/v1/providers/{provider}/webhook", "Take a webhook of a service about one of its jobs")
	op.Description = "For services, which sign what they send; see docs/jobs.md. It is answered when the webhook is stored, and acted upon after that; one that is repeated changes nothing. Whatever is wrong with one, the answer is the same."
	op.DefaultStatus = http.StatusNoContent
	op.MaxBodyBytes = jobs.MaxDelivery + 1
	rest.Handle(rt, op, rest.Policy{Public: true, Once: rest.OnceNot}, func(ctx context.Context, in *delivery) (*struct{}, error) {
		return nil, keeper.Deliver(ctx, in.Provider, rest.From(ctx).HTTP.Header, in.RawBody)
	})
	registerJobs(rt, keeper)
}

type delivery struct {
	Provider string `path:"provider" maxLength:"64" doc:"A name under providers of the configuration."`
	RawBody  []byte `contentType:"application/json"`
}
