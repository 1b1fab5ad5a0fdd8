// SPDX-License-Identifier: Apache-2.0

// Package ledger decides what happens to the credits of an account.
//
// Credits come in lots. Each movement is an entry that moves an amount between two
// buckets of one or more lots, so that at every entry
//
//	granted = pending + available + held + spent + expired + voided
//
// A reservation holds credits of the lots that burn first. A settlement spends the front
// of what is held and releases the rest. A hold keeps its lots past their end: what it
// returns to a lot that has ended is expired or voided at once.
//
// The package is pure: time arrives as an argument, and a caller makes the entries
// durable. It never decides what a step costs or whether a run may start; it knows no
// run but by its name.
package ledger

import (
	"fmt"
	"math"

	"github.com/roux-engine/roux/fault"
)

// MaxAmount is the largest amount of one grant, one reservation and one account, in
// credits. Sums of two amounts fit into an int64 with room to spare.
const MaxAmount = 1_000_000_000_000_000

// The bounds of what callers name and write, in bytes.
const (
	MaxKey  = 255
	MaxNote = 1000

	maxText = 1024 // of a key that was derived from others
)

// A Kind says what an entry does. The numbers are stored.
type Kind uint8

// The kinds of entries, with the buckets between which they move credits.
const (
	Grant   Kind = 1 // issued → free
	Reserve Kind = 2 // free → held
	Extend  Kind = 3 // free → held, for a hold that exists
	Settle  Kind = 4 // held → spent, from the front of the hold
	Release Kind = 5 // held → free, what the settlement has left
	Adjust  Kind = 6 // spent → free, a correction
	Expire  Kind = 7 // free → expired
	Void    Kind = 8 // free → voided
)

var kindNames = [...]string{
	Grant: "grant", Reserve: "reserve", Extend: "extend", Settle: "settle",
	Release: "release", Adjust: "adjust", Expire: "expire", Void: "void",
}

func (k Kind) String() string {
	if int(k) < len(kindNames) && kindNames[k] != "" {
		return kindNames[k]
	}
	return "unknown"
}

// ParseKind returns the kind of that name.
func ParseKind(name string) (Kind, error) {
	for k, n := range kindNames {
		if n == name && n != "" {
			return Kind(k), nil
		}
	}
	return 0, fmt.Errorf("there is no kind of entry %q", name)
}

// A Bucket is where credits of a lot are.
type Bucket uint8

// The buckets. Free credits are pending before the lot takes effect, available while it
// lasts, and expired from its end on, whether or not an entry has said so yet.
const (
	Issued Bucket = iota // the other side of a grant
	Free
	Held
	Spent
	Expired
	Voided
)

func (b Bucket) String() string {
	names := [...]string{"issued", "free", "held", "spent", "expired", "voided"}
	if int(b) < len(names) {
		return names[b]
	}
	return "unknown"
}

// Postings returns the pair of buckets between which an entry of this kind moves its
// amount.
func (k Kind) Postings() (from, to Bucket) {
	switch k {
	case Grant:
		return Issued, Free
	case Reserve, Extend:
		return Free, Held
	case Settle:
		return Held, Spent
	case Release:
		return Held, Free
	case Adjust:
		return Spent, Free
	case Expire:
		return Free, Expired
	case Void:
		return Free, Voided
	}
	return Issued, Issued
}

// A Source is where the credits of a lot come from.
type Source string

// The sources of lots.
const (
	Paid        Source = "paid"
	Promotional Source = "promotional"
)

// Terms are what a lot is granted with. Times are UTC µs.
type Terms struct {
	Source    Source `json:"source"`
	Priority  int32  `json:"priority,omitempty"` // lots with a lower one burn first
	Effective int64  `json:"effectiveAt"`
	Expires   int64  `json:"expiresAt,omitempty"` // 0 = never
}

// A Part is an amount of one lot.
type Part struct {
	Lot    string `json:"lot"`
	Amount int64  `json:"amount"`
}

// An Entry is one movement of credits. Its key is unique in the account. The store
// refuses an entry whose key it has, so that nothing is moved twice; this package does
// not look at keys.
type Entry struct {
	Key   string `json:"key"`
	Kind  Kind   `json:"kind"`
	At    int64  `json:"at"` // UTC µs; that of [Account.Expire] is the end of the lot
	Parts []Part `json:"parts"`
	// Hold names the reservation of a reserve, extend, settle or release, and Run the
	// root run that it is for. What these return to a lot that has ended, and what an
	// adjustment returns, have both too.
	Hold string `json:"hold,omitempty"`
	Run  string `json:"run,omitempty"`
	// HoldUntil is the ttl of the run of a reserve, for people: the hold does not end
	// then.
	HoldUntil int64 `json:"holdUntil,omitempty"`
	// KeyName, of a reserve, is the name of the key that the run was started with. All
	// entries of the hold count in the budget of that key.
	KeyName string `json:"keyName,omitempty"`
	// Day, of a reserve or extend, is when the day in which it counts begins in the time
	// zone of the account, UTC µs; 0 = the day in UTC.
	Day   int64  `json:"day,omitempty"`
	Terms *Terms `json:"terms,omitempty"` // of a grant
	Note  string `json:"note,omitempty"`  // why, for people
}

// Amount is the sum of the entry's parts.
func (e *Entry) Amount() int64 { return sum(e.Parts) }

func sum(parts []Part) (n int64) {
	for i := range parts {
		n += parts[i].Amount
	}
	return n
}

// A Balance is the state of an account's credits at one time. Pending, Available, Held,
// Spent, Expired and Voided add up to Granted.
type Balance struct {
	Granted   int64 `json:"granted"`
	Pending   int64 `json:"pending"`
	Available int64 `json:"available"`
	Held      int64 `json:"held"`
	Spent     int64 `json:"spent"`
	Expired   int64 `json:"expired"`
	Voided    int64 `json:"voided"`
}

// Total is what the account can spend or is spending: available and held credits.
func (b Balance) Total() int64 { return b.Available + b.Held }

func checkAmount(what string, n int64) error {
	if n <= 0 || n > MaxAmount {
		return fault.New(fault.InputInvalid, "%s of %d credits: want a whole number from 1 to %d", what, n, int64(MaxAmount))
	}
	return nil
}

// add is a+b, held to the range of an amount; ok is false when the sum leaves it.
func add(a, b int64) (n int64, ok bool) {
	if a > 0 && b > math.MaxInt64-a || a < 0 && b < math.MinInt64-a {
		return 0, false
	}
	n = a + b
	return n, n >= 0 && n <= MaxAmount
}
