// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/expressions"
	"github.com/roux-engine/roux/internal/compile/texts"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/jsonx"
)

// hasSecret reports calls of secret where there is none: everywhere but in the parameters
// of an action. The value of a secret is only known to the worker that calls the action, so
// that it cannot become part of a run.
func (c *compiler) hasSecret(at location, src string, template bool) bool {
	off := expressions.CallOf("secret", src, template)
	if off < 0 {
		return false
	}
	c.fail(fault.RecipeInvalid, "secret", at.in(utf8.RuneCountInString(src[:off]), len("secret")),
		"a secret can only be used in the inputs of an action",
		"write \"{{ secret('name') }}\" as an input of the action that needs it")
	return true
}

// treeSecret checks the references to secrets in a JSON value, and reports whether there is
// one that cannot be compiled.
func (c *compiler) treeSecret(at site, raw json.RawMessage) bool {
	if !strings.Contains(string(raw), "secret") {
		return false
	}
	found := false
	texts.In(raw, "", func(ptr, text string) {
		where := at.at
		where.ptr += ptr
		if expr.IsTemplate(text) {
			found = c.textSecret(where, text, at.secrets) || found
		}
	})
	return found
}

// textSecret checks the references to secrets in a template.
func (c *compiler) textSecret(at location, src string, allowed bool) (wrong bool) {
	if !allowed {
		return c.hasSecret(at, src, true)
	}
	uses, rest := expr.Secrets(src)
	for _, u := range uses {
		where := at.in(u.Offset, u.Len)
		switch {
		case !jsonx.SecretName(u.Name):
			c.fail(fault.RecipeInvalid, "secret", where, fmt.Sprintf("%q cannot be the name of a secret", u.Name),
				"want at most 64 letters, digits, underscores and dashes")
			wrong = true
		case c.in.opt.NoSecrets && c.unit.text == nil:
			c.fail(fault.RecipeInvalid, "secret", where, "a recipe that a step has made uses no secrets", "register a recipe that uses them, and run it with `ref`")
			wrong = true
		case c.opt.Secret != nil:
			if err := c.opt.Secret(u.Name); err != nil {
				c.warn("secret-not-found", where, fault.Message(err), "")
			}
		}
	}
	if off := expressions.CallOf("secret", rest, true); off >= 0 {
		c.fail(fault.RecipeInvalid, "secret", at.in(utf8.RuneCountInString(rest[:off]), len("secret")),
			"the value of a secret is not known to expressions, so nothing can be done with it but to pass it on",
			"write the braces around it alone, as in \"Bearer {{ secret('name') }}\", with the name as a text in quotes")
		wrong = true
	}
	return wrong
}
