// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"strconv"
	"strings"
)

// GrantKey is the key of the entry that grants a lot.
func GrantKey(lot string) string { return "grant/" + lot }

// EventKey is the key of an entry that follows from an event of a run: what it does, its
// reservation, and the number of the event. [Account.Settle] derives further keys from
// it.
func EventKey(kind Kind, hold string, event uint64) string {
	return kind.String() + "/" + hold + "." + strconv.FormatUint(event, 10)
}

// Event returns the number of the event in the entry's key; ok is false if the key has
// another form than those which follow from an event, as that of a reservation has.
func (e *Entry) Event() (event uint64, ok bool) {
	if e.Hold == "" || e.Kind == Reserve || e.Kind == Adjust {
		return 0, false
	}
	_, rest, _ := strings.Cut(e.Key, "/")
	rest, ok = strings.CutPrefix(rest, e.Hold)
	if !ok || rest == "" || rest[0] != '.' {
		return 0, false
	}
	digits, _, _ := strings.Cut(rest[1:], "/")
	event, err := strconv.ParseUint(digits, 10, 64)
	return event, err == nil && event > 0 && digits[0] != '0' && digits[0] != '+'
}
