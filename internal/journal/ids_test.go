// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"crypto/rand"
	"encoding/hex"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/internal/journal"
)

// A run's id is its UUID in base 32, so that ids sort as they were made.
func TestRunIDs(t *testing.T) {
	for text, want := range map[string]string{
		"00000000-0000-0000-0000-000000000000": "run_00000000000000000000000000",
		"ffffffff-ffff-ffff-ffff-ffffffffffff": "run_7ZZZZZZZZZZZZZZZZZZZZZZZZZ",
		"00000000-0000-0000-0000-00000000001f": "run_0000000000000000000000000Z",
		"00000000-0000-0001-0000-000000000000": "run_0000000000000G000000000000",
		"0123ab45-6789-7cde-8f01-23456789abcd": "run_014ENMASW9FKF8Y0938NKRKAYD",
	} {
		var u [16]byte
		if _, err := hex.Decode(u[:], []byte(strings.ReplaceAll(text, "-", ""))); err != nil {
			t.Fatal(err)
		}
		if got := journal.RunID(u); got != want {
			t.Errorf("%s becomes %s, want %s", text, got, want)
		}
	}
}

// uuidOf is the UUID of an id.
func uuidOf(t *testing.T, id string) (hi, lo uint64) {
	t.Helper()
	_, digits, _ := strings.Cut(id, "_")
	for _, c := range digits {
		d := strings.IndexRune("0123456789ABCDEFGHJKMNPQRSTVWXYZ", c)
		if d < 0 || len(digits) != 26 {
			t.Fatalf("the id %s", id)
		}
		hi, lo = hi<<5|lo>>59, lo<<5|uint64(d)
	}
	return hi, lo
}

// A27: of the 128 bits of an id 72 are random, also of ids of one millisecond, and the rest is
// that of a UUIDv7 with the time of the clock.
func TestA27_RandomIDs(t *testing.T) {
	const n = 4000
	at := time.UnixMilli(0x0123456789ab)
	ids := journal.NewIDs(rand.Reader, func() time.Time { at = at.Add(time.Millisecond / 4); return at })
	var ones [128]int
	for i := range n {
		id, _, err := ids.Run()
		if i%2 == 1 {
			id, err = ids.ID("key_")
		}
		if err != nil {
			t.Fatal(err)
		}
		hi, lo := uuidOf(t, id)
		if ms := int64(hi >> 16); ms < at.UnixMilli() || ms > at.UnixMilli()+1 || hi>>12&15 != 7 || lo>>62 != 2 {
			t.Fatalf("%s is no UUIDv7 of the time: %x %x", id, hi, lo)
		}
		for i := range 64 {
			ones[i] += int(lo >> i & 1)
			ones[64+i] += int(hi >> i & 1)
		}
	}
	random := 0
	for bit, k := range ones[:74] { // those of the time also have both values
		if k > n*4/10 && k < n*6/10 {
			random++
		} else if bit != 62 && bit != 63 {
			t.Errorf("bit %d is set in %d of %d ids", bit, k, n)
		}
	}
	if random != 72 {
		t.Errorf("%d bits are random, want 72", random)
	}
}

// Ids sort as they were made, four in a millisecond and more while their time may be ahead of
// the clock, also when the clock is turned back a little. No random bits make two ids equal.
func TestIDsHaveAnOrder(t *testing.T) {
	at := time.UnixMilli(1_000_000_000_000)
	ids := journal.NewIDs(rand.Reader, func() time.Time { return at })
	take := func(n int) (list []string) {
		t.Helper()
		for range n {
			id, _, err := ids.Run()
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, id)
		}
		return list
	}
	ms := func(id string) int64 { hi, _ := uuidOf(t, id); return int64(hi >> 16) }
	list := take(2000)
	at = at.Add(-100 * time.Millisecond)
	list = append(list, take(1000)...)
	at = at.Add(200 * time.Millisecond)
	list = append(list, take(1000)...)
	if !slices.IsSorted(list) {
		t.Error("ids do not sort as they were made")
	}
	// However many there are, their time is at most a second ahead.
	all := map[string]bool{}
	for _, id := range take(20_000) {
		if all[id] || ms(id) > at.UnixMilli()+1000 {
			t.Fatalf("the id %s", id)
		}
		all[id] = true
	}
	at = at.Add(2 * time.Second)
	if list = take(3); !slices.IsSorted(list) || ms(list[0]) != at.UnixMilli() {
		t.Errorf("after a pause: %v", list)
	}
	at = at.Add(-time.Hour)
	if list = take(3); !slices.IsSorted(list) || ms(list[0]) != at.UnixMilli() {
		t.Errorf("after the clock was turned back an hour: %v", list)
	}
}
