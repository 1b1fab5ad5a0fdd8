// SPDX-License-Identifier: Apache-2.0

package access

import (
	"regexp"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
)

// The scope [Work] may be of a queue, as in work:gpu, or of an action of one, as in work:gpu/transcribe.
const ofQueue = string(Work) + ":"

var workForm = regexp.MustCompile(`^` + ofQueue + `[a-z][a-z0-9_-]{0,63}(/[a-z][a-z0-9-]{0,63})?$`)

// isPartOfWork reports whether a scope is that of a queue, or of an action of one.
func isPartOfWork(s Scope) bool { return workForm.MatchString(string(s)) }

// includes reports whether a scope allows all that another one does.
func (s Scope) includes(other Scope) bool {
	return s == other || isPartOfWork(other) && (s == Work || isPartOfWork(s) && strings.HasPrefix(string(other), string(s)+"/"))
}

// Tasks narrows what a remote worker asks for to what its key allows: actions of a queue, by name or as
// name@version, where none means all of them.
func (p *Principal) Tasks(queue string, actions []string) ([]string, error) {
	if slices.Contains(p.Scopes, Work) || !strings.Contains(queue, "/") && slices.Contains(p.Scopes, Scope(ofQueue+queue)) {
		return actions, nil
	}
	var may []string
	for _, s := range p.Scopes {
		if name, ok := strings.CutPrefix(string(s), ofQueue+queue+"/"); ok {
			may = append(may, name)
		}
	}
	if len(actions) > 0 && len(may) > 0 {
		may = slices.DeleteFunc(slices.Clone(actions), func(a string) bool {
			name, _, _ := strings.Cut(a, "@")
			return !slices.Contains(may, name)
		})
	}
	if len(may) > 0 {
		return may, nil
	}
	err := fault.New(fault.Forbidden, "the key is not for these tasks of the queue %.64q", queue)
	err.Remedy = "Ask for those of its scopes, which `GET /v1/me` lists, or use another key."
	return nil, err
}
