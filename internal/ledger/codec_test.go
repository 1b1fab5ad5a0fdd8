// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"bytes"
	"encoding/hex"
	"testing"
)

// example is an account with a lot in every bucket and a hold on two lots.
func example(t testing.TB) *Account {
	a := NewAccount()
	grant(t, a, 1, "P", 50, Terms{Source: Promotional, Expires: hour})
	grant(t, a, 1, "Q", 100, Terms{Source: Paid, Priority: -3})
	grant(t, a, 1, "R", 7, Terms{Source: Paid, Effective: 2 * hour})
	for _, err := range []error{
		second(a.Reserve(2, "run/1/reserve", "run/1", "run", 120, 48*hour)),
		second(a.Settle(3, "run/1/settle", "run/1", 20)),
		second(a.Reserve(4, "run/2/reserve", "run/2", "run", 90, 48*hour)),
		second(a.Void(5, "v", "R", "a mistake")),
		second(a.Expire(3 * hour)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return a
}

// The bytes of a stored entry and of a stored state never change: what is read was
// written by an earlier release.
func TestStoredForms(t *testing.T) {
	e := &Entry{Key: "k", Kind: Grant, At: 5, Note: "n", Terms: &Terms{Paid, 3, 5, 9}, Parts: []Part{{"lot", 300}}}
	if got, want := hex.EncodeToString(e.Append(nil)), "01010a000000016e0470616964060a1201036c6f74d804"; got != want {
		t.Errorf("an entry is %s, want %s", got, want)
	}
	e = &Entry{Key: "k", Kind: Reserve, At: 5, Hold: "h", Run: "r", KeyName: "ci", Day: -4, Parts: []Part{{"lot", 300}}}
	if got, want := hex.EncodeToString(e.Append(nil)), "02020a016801720000026369"+"0701036c6f74d804"; got != want {
		t.Errorf("an entry with a key is %s, want %s", got, want)
	}
	const want = "020980909de91a0301500b70726f6d6f74696f6e616c000280909de91a02010000140050000151047061696405020002020000a001280000015204706169640080a0bad2350002030a000000000e010572756e2f320372756e088080f6ba870a0202a0010114000100b4010100dc010100dc01"
	if got := hex.EncodeToString(example(t).AppendState(nil)); got != want {
		t.Errorf("a state is %s, want %s", got, want)
	}
}

// Bytes cut short anywhere, with something behind their end, or of an unknown form are
// refused.
func TestDamagedForms(t *testing.T) {
	a := example(t)
	state, entry := a.AppendState(nil), (&Entry{Key: "k", Kind: Settle, At: 5, Hold: "h", Parts: []Part{{"lot", 300}}}).Append(nil)
	keyed := (&Entry{Key: "k", Kind: Reserve, At: 5, Hold: "h", KeyName: "ci", Day: 7, Parts: []Part{{"lot", 300}}}).Append(nil)
	for _, form := range []struct {
		data []byte
		read func([]byte) error
	}{
		{keyed, func(b []byte) error { return second(DecodeEntry("k", b)) }},
		{state, func(b []byte) error { return second(DecodeState(b)) }},
		{entry, func(b []byte) error { return second(DecodeEntry("k", b)) }},
	} {
		for n := range form.data {
			if form.read(form.data[:n]) == nil {
				t.Errorf("%d of %d bytes are accepted", n, len(form.data))
			}
		}
		if form.read(append(bytes.Clone(form.data), 0)) == nil {
			t.Error("a byte behind the end is accepted")
		}
		other := bytes.Clone(form.data)
		other[0] = 9
		if form.read(other) == nil {
			t.Error("another form is accepted")
		}
	}
	contradictions := 0
	for i := range state {
		other := bytes.Clone(state)
		other[i] ^= 2
		if b, err := DecodeState(other); err != nil {
			contradictions++
		} else if b.granted != sumOfBuckets(b) {
			t.Errorf("byte %d: the books of a state do not balance", i)
		}
	}
	if contradictions == 0 {
		t.Error("no contradiction was noticed")
	}
}

func sumOfBuckets(a *Account) int64 {
	b := a.Balance(a.at)
	return b.Pending + b.Available + b.Held + b.Spent + b.Expired + b.Voided
}

func FuzzDecode(f *testing.F) {
	f.Add(example(f).AppendState(nil))
	f.Add((&Entry{Kind: Grant, At: 1, Terms: &Terms{}, Parts: []Part{{"lot", 1}}}).Append(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		if a, err := DecodeState(data); err == nil {
			once := a.AppendState(nil)
			b, err := DecodeState(once)
			if err != nil || !bytes.Equal(b.AppendState(nil), once) {
				t.Fatalf("a state that was read is written as another one: %v", err)
			}
			if a.granted != sumOfBuckets(a) {
				t.Fatal("the books of a state do not balance")
			}
		}
		if e, err := DecodeEntry("k", data); err == nil {
			once := e.Append(nil)
			if again, err := DecodeEntry("k", once); err != nil || !bytes.Equal(again.Append(nil), once) {
				t.Fatalf("an entry that was read is written as another one: %v", err)
			}
		}
	})
}
