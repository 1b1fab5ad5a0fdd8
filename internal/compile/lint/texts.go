// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/compile/texts"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/jsonx"
)

const (
	// maxSteps is how many steps a recipe has before it is worth a remark.
	maxSteps = 50
	// maxExpression is how many bytes an expression has before it is worth a remark.
	maxExpression = 1000
)

// head looks at what a recipe says of itself.
func (c *checker) head() {
	if strings.TrimSpace(c.r.Description) == "" {
		c.advise("missing-description", c.r.Ptr, "the recipe has no description", "say in a sentence what it does: lists of recipes and the pages of the service show it")
	}
	if len(c.inputs) > 0 && len(c.r.InputSchema) == 0 {
		e := c.inputs[0]
		c.advise("missing-input-schema", e.Pointer, "the recipe reads its input, and no inputSchema says what that must be: a wrong start fails here, in the middle of the run", "add an inputSchema with properties and required")
	}
}

// size looks at how long a recipe is, and at steps that it has several times.
func (c *checker) size() {
	n := 0
	c.r.Each(func(*recipe.Step) { n++ })
	if n > maxSteps {
		c.adviseKey("too-many-steps", c.r.Ptr+"/steps", fmt.Sprintf("the recipe has %d steps", n), "move parts of it into recipes of their own: `roux refactor FILE --suggest` finds some")
	}
	for _, g := range Repeated(c.r) {
		if len(g.Steps[0]) >= 3 {
			first, again := g.Steps[0], g.Steps[1]
			c.advise("repeated-steps", again[0].Ptr, fmt.Sprintf("%d steps from %s on are those from %s on, up to names", len(again), named(again[0]), named(first[0])), "make one recipe of them and run that twice: `roux refactor FILE --suggest` shows how")
		}
	}
}

// literals looks at the texts in the values that a recipe passes on, but not at those in schemas.
func (c *checker) literals() {
	texts.Each(c.r, func(t *texts.Text) {
		if t.Kind == texts.Value && t.Pointer != t.Step.Ptr+"/wait/approval/form" {
			texts.In([]byte(t.Source), t.Pointer, c.literal)
		}
	})
}

// literal looks at a text.
func (c *checker) literal(pointer, text string) {
	name := jsonx.UnescapeToken(pointer[strings.LastIndexByte(pointer, '/')+1:])
	switch {
	case looksSecret.MatchString(text) || secretName.MatchString(name) && len(text) >= 6 && !expr.IsTemplate(text):
		c.advise("plain-secret", pointer, fmt.Sprintf("%q looks like a secret in the text of the recipe, which whoever reads recipes or runs sees", name),
			"keep it with `roux secrets set NAME` and write {{ secret('NAME') }}; if it was published, replace it")
	case insecure(text):
		c.advise("plain-http", pointer, "what is sent over http:// can be read and changed on the way", "use https://")
	}
}

var (
	secretName  = regexp.MustCompile(`(?i)(^|[_-])(password|passwd|passphrase|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|authorization)$`)
	looksSecret = regexp.MustCompile(`(^|[^A-Za-z0-9])(sk-[A-Za-z0-9_-]{20,}|AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{20,}|xox[abprs]-[A-Za-z0-9-]{10,}|Bearer [A-Za-z0-9._~+/-]{16,}|-----BEGIN [A-Z ]*PRIVATE KEY-----)`)
	plainHTTP   = regexp.MustCompile(`(?i)http://([A-Za-z0-9.-]+|\[[0-9a-f:]+\])`)
)

// insecure reports whether a text names a host over plain HTTP that is not this machine or a name of examples.
func insecure(text string) bool {
	for _, m := range plainHTTP.FindAllStringSubmatch(text, -1) {
		host := strings.ToLower(m[1])
		local := host == "localhost" || host == "[::1]" || strings.HasPrefix(host, "127.") || strings.HasSuffix(host, ".localhost") || strings.HasSuffix(host, ".internal")
		if !local {
			return true
		}
	}
	return false
}

// expression looks at an expression.
func (c *checker) expression(e texts.Use) {
	if e.Kind != texts.Template && len(e.Source) > maxExpression {
		c.advise("long-expression", e.Pointer, fmt.Sprintf("the expression has %d characters", len(e.Source)), "compute parts of it in transforms, whose values a trace shows")
	}
	if e.Kind != texts.Template && insecure(e.Source) {
		c.advise("plain-http", e.Pointer, "what is sent over http:// can be read and changed on the way", "use https://")
	}
}
