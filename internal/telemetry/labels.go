// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/roux-engine/roux/fault"
)

// other is the label value of everything that has none of its own.
const other = "other"

// maxLabel is how long a label value may be, in bytes.
const maxLabel = 128

// names gives the first names that it sees a label value of their own (A25). The names of
// recipes are chosen by users, and each value of a label makes new series in every metric
// that has it, which neither this process nor a database of metrics ever frees.
type names struct {
	mu    sync.Mutex
	most  int
	known map[string]bool
}

func newNames(most int) *names { return &names{most: most, known: map[string]bool{}} }

// label returns the label value of a name.
func (n *names) label(name string) string {
	if len(name) > maxLabel || !utf8.ValidString(name) {
		return other
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.known[name] {
		if len(n.known) >= n.most {
			return other
		}
		n.known[strings.Clone(name)] = true
	}
	return name
}

// codeLabel is the label value of an error's code. Recipes and providers have codes of
// their own, which are not in the table.
func codeLabel(code fault.Code) string {
	if row, ok := fault.Lookup(code); ok {
		return string(row.Code)
	}
	return other
}
