// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"
	"encoding/json"
)

// A ModerationGateway decides whether what a step gets or gives may pass (X168). It is asked about
// the steps of recipes that say moderation: before their action is called about its input, and
// about its output before anything of it is shown or recorded.
type ModerationGateway interface {
	// Check returns a verdict. An error means that there is none: nothing passes, and the attempt
	// fails with MODERATION_UNAVAILABLE, which its retry policy may cover. Check must return soon
	// after ctx ends. It is called by many goroutines.
	Check(ctx context.Context, m *Moderation) (Verdict, error)
}

// A Moderation is a question to a moderator.
type Moderation struct {
	Phase   string // input or output
	Account string
	Run     string
	Step    string // as Task.Step
	Attempt int
	Action  string
	// Value is what is to be looked at: the input or the output of the action as JSON, or, of text
	// that is streamed, a JSON string with a piece of it. Secrets are removed from it.
	Value json.RawMessage
	// Texts are the texts in Value, names of fields included, in their order.
	Texts []string
}

// A Verdict is the answer of a moderator.
type Verdict struct {
	Flagged bool
	// By names who decided. If it is empty, the name by which the moderator is configured counts.
	By []string
	// Categories are what it was flagged for, such as "violence".
	Categories []string
	// Reason is one sentence for people. It must not quote what was flagged, because everyone who
	// sees the run sees it.
	Reason string
}
