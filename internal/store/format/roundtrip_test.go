// SPDX-License-Identifier: Apache-2.0

package format

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/store"
)

func runKey(i int) store.Key { return store.Key{Account: "acme", Run: fmt.Sprintf("run_%06d", i)} }

var (
	anyKey = rapid.Custom(func(t *rapid.T) store.Key {
		return store.Key{Account: rapid.String().Draw(t, "account"), Run: rapid.String().Draw(t, "run")}
	})
	someBytes = rapid.SliceOfN(rapid.Byte(), 0, 300)
)

// drawEvents draws the number of a first event and of a last one not before it.
func drawEvents(t *rapid.T) (first, last uint64) {
	first = rapid.Uint64Range(1, 1<<60).Draw(t, "first")
	return first, first + rapid.Uint64Range(0, 1<<20).Draw(t, "more")
}

// TestBlobRoundTrip: every blob decodes to its data, and no changed byte goes unnoticed.
func TestBlobRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		part := someBytes.Draw(t, "part")
		data := bytes.Repeat(part, rapid.IntRange(0, 100).Draw(t, "times"))
		blob := EncodeBlob(data, rapid.Bool().Draw(t, "compress"))
		back, err := DecodeBlob(blob)
		if err != nil || !bytes.Equal(back, data) {
			t.Fatalf("%d bytes decode to %d, %v", len(data), len(back), err)
		}
		if len(blob) > BlobHead+len(data)+64 {
			t.Fatalf("%d bytes take %d", len(data), len(blob))
		}
		at := rapid.IntRange(0, len(blob)-1).Draw(t, "at")
		blob[at] ^= byte(rapid.IntRange(1, 255).Draw(t, "flip"))
		if _, err := DecodeBlob(blob); err == nil {
			t.Fatalf("byte %d of %d was changed and the blob decodes", at, len(blob))
		}
	})
}

// TestPackRoundTrip: a pack has the pieces that were added, in order, also after
// Without has removed some runs.
func TestPackRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOfNDistinct(anyKey, 1, 8, rapid.ID).Draw(t, "keys")
		want := map[store.Key]store.Compaction{}
		var pack Pack
		full := false
		for _, key := range keys {
			c := store.Compaction{Chunk: someBytes.Draw(t, "chunk"), Format: rapid.Uint32().Draw(t, "format")}
			c.First, c.Last = drawEvents(t)
			if rapid.Bool().Draw(t, "with a state") {
				c.State = append([]byte{}, someBytes.Draw(t, "state")...)
			}
			want[key] = c
			full = pack.Add(key, &c)
		}
		blob := pack.Encode()
		data, err := DecodeBlob(blob)
		if err != nil {
			t.Fatal(err)
		}
		if full != (len(data) >= PackSize) {
			t.Fatalf("a pack of %d bytes is full: %t", len(data), full)
		}
		check := func(data []byte, keys []store.Key) {
			i := 0
			err := EachPiece(data, func(p *Piece, _ []byte) bool {
				if i == len(keys) || !p.Of(keys[i]) {
					t.Fatalf("piece %d is of run %q of account %q", i, p.Run, p.Account)
				}
				w := want[keys[i]]
				if p.First != w.First || p.Last != w.Last || p.Format != w.Format || !bytes.Equal(p.Frames, w.Chunk) ||
					(p.State == nil) != (w.State == nil) || !bytes.Equal(p.State, w.State) {
					t.Fatalf("piece %d = %+v, want %+v", i, p, w)
				}
				i++
				return true
			})
			if err != nil || i != len(keys) {
				t.Fatalf("%d pieces, want %d: %v", i, len(keys), err)
			}
		}
		check(data, keys)

		gone := map[store.Key]struct{}{}
		var left []store.Key
		for _, key := range keys {
			if rapid.Bool().Draw(t, "is deleted") {
				gone[key] = struct{}{}
			} else {
				left = append(left, key)
			}
		}
		switch rest, err := Without(data, gone); {
		case err != nil:
			t.Fatal(err)
		case len(left) == 0 && rest != nil:
			t.Fatalf("%d bytes are left of no run", len(rest))
		case len(left) > 0:
			check(rest, left)
		}
		pack.Reset()
		if !pack.Empty() {
			t.Fatal("a pack is not empty after Reset")
		}
	})
}

// TestRowsRoundTrip: a row holds its transitions, each record can be read alone, and
// RecordSize is a bound.
func TestRowsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var batch []*store.Transition
		var heads []bool
		bound := RowHead
		for range rapid.IntRange(1, 6).Draw(t, "records") {
			tr := &store.Transition{Key: anyKey.Draw(t, "key"), Frames: someBytes.Draw(t, "frames")}
			tr.First, tr.Last = drawEvents(t)
			heads = append(heads, rapid.Bool().Draw(t, "with its head"))
			if heads[len(batch)] {
				tr.Head = drawHead(t, tr.Key)
			}
			batch = append(batch, tr)
			bound += RecordSize(tr, tr.Head != nil)
		}
		type place struct{ off, n uint32 }
		places := make([]place, len(batch))
		row := AppendRow(nil, batch, func(i int) bool { return heads[i] }, func(i int, off, n uint32) { places[i] = place{off, n} })
		if !IntactDirectory(row) {
			t.Fatal("the directory is not intact")
		}
		i := 0
		lost := ParseRow(row, Texts{}, func(r Record) {
			w := batch[i]
			alone, err := ParseRecord(row[places[i].off:][:places[i].n], nil)
			if err != nil || alone.Key != r.Key || !bytes.Equal(alone.Frames, r.Frames) {
				t.Fatalf("record %d alone = %+v, %v", i, alone, err)
			}
			if r.Damaged != "" || r.Key != w.Key || r.First != w.First || r.Last != w.Last || r.Off != places[i].off || !bytes.Equal(r.Frames, w.Frames) {
				t.Fatalf("record %d = %+v, want %+v", i, r, w)
			}
			if r.HasHead() != heads[i] || alone.HasHead() != heads[i] {
				t.Fatalf("record %d has a head: %v, want %v", i, r.HasHead(), heads[i])
			}
			if heads[i] {
				if h, err := r.Head(); err != nil || h != *w.Head {
					t.Fatalf("record %d has the head %+v, %v, want %+v", i, h, err, *w.Head)
				}
			}
			i++
		})
		if lost != -1 || i != len(batch) {
			t.Fatalf("%d of %d records, lost from %d", i, len(batch), lost)
		}
		if len(row) > bound+4 {
			t.Fatalf("a row of %d bytes, the bound is %d", len(row), bound)
		}
	})
}

// drawHead draws a head as a record can hold it.
func drawHead(t *rapid.T, key store.Key) *store.Head {
	text := func(name string) string { return rapid.String().Draw(t, name) }
	number := func(name string) int64 { return rapid.Int64().Draw(t, name) }
	return &store.Head{
		Key: key, Recipe: text("recipe"), Version: text("version"), PlanHash: text("plan"), Root: text("root"), Parent: text("parent"),
		Status: text("status"), Code: fault.Code(text("code")), Message: text("message"),
		Created: number("created"), Updated: number("updated"), Ended: number("ended"), Used: number("used"), Failures: rapid.Bool().Draw(t, "failures"),
	}
}

// TestMalformedHead: a record whose checksum is right and whose head is cut is refused, and
// never read beyond its end.
func TestMalformedHead(t *testing.T) {
	whole := appendHead(nil, &store.Head{Recipe: "r", PlanHash: "p", Status: "running", Created: 300, Updated: 300})
	for n := range whole {
		r := Record{First: 1, head: whole[:n]}
		if _, err := r.Head(); fault.CodeOf(err) != fault.StoreCorrupt {
			t.Errorf("a head cut to %d bytes: %v", n, err)
		}
	}
	for _, body := range []string{"", "abc", "\x05\x00\x00\x00four", "\xff\xff\xff\xff"} {
		if _, _, err := cutHead([]byte(body)); err == nil {
			t.Errorf("the length in %q was taken", body)
		}
	}
}

// TestRowSumEqualsSum: a RowSum, which sums the key once, and Sum give the same.
func TestRowSumEqualsSum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := anyKey.Draw(t, "key")
		h := &store.Head{Recipe: rapid.String().Draw(t, "recipe"), Status: rapid.String().Draw(t, "status"),
			Created: rapid.Int64().Draw(t, "created"), Failures: rapid.Bool().Draw(t, "failures")}
		last := rapid.Int64().Draw(t, "last")
		k := NewRowSum(key)
		defer k.Done()
		for _, s := range []struct {
			what      string
			got, want int64
		}{
			{"start", k.Start(h), Sum(key.Account, key.Run, h.Recipe, "", "", h.Created)},
			{"head", k.Head(h), Sum(key.Account, key.Run, h.Status, int64(0), int64(0), "", "", int64(0), Flag(h.Failures), []byte(nil), int64(0))},
			{"reach", k.Reach(last), ReachSum(key, last)},
			{"start alone", StartSum(key, h), k.Start(h)},
			{"head alone", HeadSum(key, h), k.Head(h)},
		} {
			if s.got != s.want {
				t.Errorf("%s: %d, want %d", s.what, s.got, s.want)
			}
		}
	})
}

// TestBytesAreFrozen: what is written today is what every release wrote, byte for byte.
func TestBytesAreFrozen(t *testing.T) {
	key := store.Key{Account: "acme", Run: "run_1"}
	var pack Pack
	pack.Add(key, &store.Compaction{First: 1, Last: 300, Chunk: []byte("frames"), Format: 3, State: []byte("state")})
	pack.Add(key, &store.Compaction{First: 301, Last: 301, Chunk: []byte("more")})
	row := AppendRow(nil, []*store.Transition{
		{Key: key, First: 7, Last: 9, Frames: []byte("abc")},
		{Key: runKey(2), First: 1, Last: 1, Frames: []byte("d")},
	}, func(int) bool { return false }, func(int, uint32, uint32) {})
	started := AppendRow(nil, []*store.Transition{{Key: key, First: 1, Last: 2, Frames: []byte("abc"), Head: &store.Head{
		Recipe: "r", Version: "1", PlanHash: "p", Root: "run_0", Parent: "run_0", Status: "running", Created: 1, Updated: 2, Used: 4, Failures: true}}},
		func(int) bool { return true }, func(int, uint32, uint32) {})
	h := &store.Head{Recipe: "r", Version: "1", PlanHash: "p", Status: "running", Created: 1, Updated: 2, Ended: 3,
		Code: fault.StoreFull, Message: "m", Used: 4, Failures: true, Quarantine: "q", Owes: true}
	var changes Changes
	changes.Reset()
	for _, c := range []store.Change{
		{At: 300, Run: "run_1", Status: "running", Recipe: "digest"},
		{At: 301, Run: "run_12", Status: "failed", Recipe: "digest", Code: fault.StoreFull, Ended: 299, Quarantined: true, Imported: true},
		{At: 301, Key: "run_12/1", Entry: 1000, Kind: ledger.Settle},
		{At: 900, Run: "run_2", Deleted: true},
		{At: 900, Key: "grant/x", Entry: 1001, Kind: ledger.Grant},
	} {
		changes.Add(&c)
	}
	var sums []byte
	for _, s := range []int64{
		StartSum(key, h), HeadSum(key, h), SuspendSum(key, 1, 42), StateSum(key, 9, 2), ReachSum(key, 9), PlaceSum(key, 5, 9),
		PieceSum(key, 1, 9, 5), ChunkSum(key, 1, 9), DeletedSum(key, 77), Sum("name", []byte("value")), Sum(nil),
	} {
		sums = fmt.Appendf(sums, "%08x", s)
	}
	for _, c := range []struct{ what, got, want string }{
		{"blob", hex.EncodeToString(EncodeBlob([]byte("data"), true)), "869c9583040000000064617461"},
		{"pack", hex.EncodeToString(pack.Encode()), "7a33f60c3200000000011b0461636d650572756e5f3101ab02030673746174656672616d6573140461636d650572756e5f31ad020000006d6f7265"},
		{"row", hex.EncodeToString(row), "0102000000183a04c218000000cca221160700000000000000030000001b000000e2c59a1201000000000000000100000026fe1faf15d6ced4100000000461636d650572756e5f31070261626336fff809130000000461636d650a72756e5f303030303032010064"},
		{"row with a head", hex.EncodeToString(started), "010100000021b326a03e000000cca22116010000000000000002000000a9a9426bc776c054360000000461636d650572756e5f3100210000000172013101700572756e5f300572756e5f300772756e6e696e67000002040008010101616263"},
		{"changes", hex.EncodeToString(changes.Data()), "0100ac02000572756e5f31000772756e6e696e6700066469676573743c0105013200066661696c656403000a53544f52455f46554c4c03020006022f31e8070401d704040132020000076772616e742f780101"},
		{"sums", string(sums), "43d21719b52ab0deb04e177c0b8b792589c31f701c75f201c8bc9d5d660af58cb2de562f16607f58d624473c"},
	} {
		if c.got != c.want {
			t.Errorf("%s = %s, want %s", c.what, c.got, c.want)
		}
	}
}
