// SPDX-License-Identifier: Apache-2.0

package roux

import (
	"context"
	"net/http"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jobs"
)

// MaxWebhook is how many bytes the body of a webhook may have that [Engine.Deliver] takes.
const MaxWebhook = jobs.MaxDelivery

// Deliver takes a webhook that an outside service has sent about a job (see
// [Options.Services]). When it returns nil the webhook is stored, and the service may be
// answered with 200; what follows from it comes later. One that is repeated changes nothing, and
// one that is earlier than the answer to the submission waits for that. fault.Unauthorized:
// the service's Receive refuses it, or there is no such provider; the answer is 401, whatever
// is wrong.
func (e *Engine) Deliver(ctx context.Context, provider string, header http.Header, body []byte) error {
	if len(body) > MaxWebhook {
		return fault.New(fault.RequestTooLarge, "the webhook has %d bytes: want at most %d", len(body), MaxWebhook)
	}
	return e.node.Jobs.Deliver(ctx, provider, header, body)
}
