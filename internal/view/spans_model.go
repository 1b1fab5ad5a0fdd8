// SPDX-License-Identifier: Apache-2.0

package view

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
)

// A ModelCall is what a span says of an attempt that asks a language model. It has no text of the
// question or the answer.
type ModelCall struct {
	Asked                     string // the model, if the step names it; "" = it does not, or computes it
	Provider, Model, Finish   string // of the answer; "" = not known
	Answered                  bool   // the numbers are known
	InputTokens, OutputTokens int64
}

// modelActions are the actions of Roux's own that ask language models.
var modelActions = []string{"llm", "claude", "translate-text"}

// modelCall returns what is known before the answer; nil = the step asks no model.
func modelCall(p *plan.Plan, step *plan.Step) *ModelCall {
	if step.Action < 0 || int(step.Action) >= len(p.Actions) || !slices.Contains(modelActions, p.Actions[step.Action].Name) {
		return nil
	}
	c := new(ModelCall)
	var params struct {
		Model json.RawMessage `json:"model"`
	}
	var name string
	if json.Unmarshal(step.Params, &params) == nil && json.Unmarshal(params.Model, &name) == nil && !strings.Contains(name, "{{") {
		c.Asked = attributeText(name)
	}
	return c
}

// answer reads what the output of an attempt says of the call. An output that is another one has
// none of it.
func (c *ModelCall) answer(ev *journal.Event) {
	var out struct {
		Provider, Model, StopReason string
		Usage                       *struct{ InputTokens, OutputTokens int64 }
	}
	if json.Unmarshal(ev.Data, &out) != nil {
		return
	}
	c.Provider, c.Model, c.Finish = attributeText(out.Provider), attributeText(out.Model), attributeText(out.StopReason)
	if out.Usage != nil {
		c.Answered, c.InputTokens, c.OutputTokens = true, out.Usage.InputTokens, out.Usage.OutputTokens
	}
}

// maxAttribute bounds a text that a service has chosen, in bytes.
const maxAttribute = 200

func attributeText(s string) string {
	if len(s) > maxAttribute {
		n := maxAttribute
		for n > 0 && !utf8.RuneStart(s[n]) {
			n--
		}
		s = s[:n]
	}
	return strings.Clone(s)
}
