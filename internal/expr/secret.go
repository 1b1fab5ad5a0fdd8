// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"regexp"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonx"
)

// secretPattern is the only form of a reference to a secret. It is no CEL: what the secret is
// stays unknown to expressions, which therefore can neither test nor change it.
var secretPattern = regexp.MustCompile(`^\s*secret\s*\(\s*(?:'([^'\\]*)'|"([^"\\]*)")\s*\)\s*$`)

// secretCall returns the name in a placeholder that is a reference to a secret.
func secretCall(src string) (name string, ok bool) {
	m := secretPattern.FindStringSubmatch(src)
	if m == nil {
		return "", false
	}
	return m[1] + m[2], true
}

// A SecretUse is a reference to a secret in a template.
type SecretUse struct {
	Name        string
	Offset, Len int // of the placeholder's content, in runes
}

// Secrets returns the references to secrets in a template, and the template with spaces in
// their place. Any call of secret that is left there is not a reference.
func Secrets(src string) (uses []SecretUse, rest string) {
	toks, problem := tokenize(src)
	if problem != nil {
		return nil, src
	}
	blank := []byte(src)
	for _, t := range toks {
		name, ok := secretCall(t.text)
		if !ok || t.kind != '{' {
			continue
		}
		cut := strings.TrimSpace(t.text)
		uses = append(uses, SecretUse{name, runes(src[:t.at+strings.Index(t.text, cut)]), runes(cut)})
		for i := range len(t.text) {
			blank[t.at+i] = ' '
		}
	}
	return uses, string(blank)
}

func (p *parser) isSecret(t token) bool {
	_, ok := secretCall(t.text)
	return ok && p.secrets && t.kind == '{'
}

// A secretNode is a reference to a secret of that name.
type secretNode string

// maxSecrets bounds the references in one text.
const maxSecrets = 32

// A secretAt is a reference to a secret in front of a byte of the text.
type secretAt struct {
	name string
	at   int
}

func (n secretNode) render(r *renderer) error {
	if len(r.secrets) == maxSecrets {
		return fault.New(fault.ExpressionLimit, "the text has more than %d secrets in it", maxSecrets)
	}
	r.secrets = append(r.secrets, secretAt{string(n), r.out.Len()})
	return nil
}

// withSecrets returns the rendered text with the references in it.
func (r *renderer) withSecrets() jsonx.Secret {
	text, done := r.out.String(), 0
	var s jsonx.Secret
	add := func(until int) {
		if until > done {
			s.Parts = append(s.Parts, jsonx.SecretPart{Text: text[done:until]})
			done = until
		}
	}
	for _, ref := range r.secrets {
		add(ref.at)
		s.Parts = append(s.Parts, jsonx.SecretPart{Name: ref.name})
	}
	add(len(text))
	return s
}

// secretForm returns about how many bytes of JSON a text with secrets has.
func secretForm(s jsonx.Secret) int {
	n := 30
	for _, p := range s.Parts {
		n += len(p.Text) + len(p.Name) + 5
	}
	return n
}
