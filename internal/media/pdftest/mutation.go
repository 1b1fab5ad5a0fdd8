// SPDX-License-Identifier: Apache-2.0

package pdftest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
)

// Mutations are ways to damage a file, by accident or on purpose.
var Mutations = []struct {
	Name string
	Do   func(rng *rand.Rand, b []byte) []byte
}{
	{"cut", func(rng *rand.Rand, b []byte) []byte { return b[:rng.IntN(len(b))] }},
	{"flipped bits", func(rng *rand.Rand, b []byte) []byte {
		for range 1 + rng.IntN(60) {
			b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
		}
		return b
	}},
	{"random bytes", func(rng *rand.Rand, b []byte) []byte {
		for range 1 + rng.IntN(40) {
			b[rng.IntN(len(b))] = byte(rng.Uint32())
		}
		return b
	}},
	{"a hole", func(rng *rand.Rand, b []byte) []byte { // it moves every offset after it
		at := rng.IntN(len(b))
		return append(b[:at:at], b[min(len(b), at+1+rng.IntN(90)):]...)
	}},
	{"blocks exchanged", func(rng *rand.Rand, b []byte) []byte {
		n := min(len(b)/4, 1+rng.IntN(2000))
		i, j := rng.IntN(len(b)/2-n+1), len(b)/2+rng.IntN(len(b)/2-n+1)
		tmp := bytes.Clone(b[i : i+n])
		copy(b[i:], b[j:j+n])
		copy(b[j:], tmp)
		return b
	}},
	{"references that lead elsewhere", func(rng *rand.Rand, b []byte) []byte {
		return bytes.ReplaceAll(b, fmt.Appendf(nil, "%d 0 R", 1+rng.IntN(12)), fmt.Appendf(nil, "%d 0 R", 1+rng.IntN(14)))
	}},
	{"numbers that are huge", func(rng *rand.Rand, b []byte) []byte {
		key := []string{"/Length ", "/Count ", "/Size ", "/First ", "/N ", "/W [", "/Prev ", "startxref\n", "/FirstChar ", "/Columns "}[rng.IntN(10)]
		return bytes.ReplaceAll(b, []byte(key), []byte(key+"99999999"))
	}},
	{"the end repeated", func(rng *rand.Rand, b []byte) []byte {
		return append(bytes.Clone(b), b[rng.IntN(len(b)):]...)
	}},
}
