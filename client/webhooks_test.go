// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"testing"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
)

// A webhook is made, changed as it was read, given new keys and deleted.
func TestWebhooks(t *testing.T) {
	ctx := t.Context()
	c := startServer(t).client()
	url, off := "https://example.com/roux", false
	made, err := c.Webhooks.Create(ctx, client.WebhookChange{URL: &url, Events: []string{"run.*"}, Enabled: &off})
	if err != nil {
		t.Fatal(err)
	}
	if made.Secret == "" || made.ETag == "" || made.Enabled || len(made.PublicKeys) != 1 {
		t.Errorf("made: %+v", made)
	}
	on := true
	changed, err := c.Webhooks.Update(ctx, made.ID, client.WebhookChange{Enabled: &on}, made.ETag)
	if err != nil || !changed.Enabled || changed.ETag == made.ETag {
		t.Errorf("changed: %+v, %v", changed, err)
	}
	if _, err := c.Webhooks.Update(ctx, made.ID, client.WebhookChange{Enabled: &off}, made.ETag); fault.CodeOf(err) != fault.PreconditionFailed {
		t.Errorf("a change of what has changed: %v", err)
	}
	rotated, err := c.Webhooks.Rotate(ctx, made.ID, client.Rotation{})
	if err != nil || rotated.Secret == made.Secret || len(rotated.PublicKeys) != 2 {
		t.Errorf("rotated: %+v, %v", rotated, err)
	}
	if all, err := client.Collect(c.Webhooks.List(ctx), 0); err != nil || len(all) != 1 {
		t.Errorf("listed: %v, %v", all, err)
	}
	if err := c.Webhooks.Delete(ctx, made.ID, changed.ETag); fault.CodeOf(err) != fault.PreconditionFailed {
		t.Errorf("deleted as it was: %v", err)
	}
	if err := c.Webhooks.Delete(ctx, made.ID, ""); err != nil {
		t.Error(err)
	}
	if _, err := c.Webhooks.Get(ctx, made.ID); fault.CodeOf(err) != fault.RecordNotFound {
		t.Errorf("after it was deleted: %v", err)
	}
}
