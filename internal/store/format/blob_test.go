// SPDX-License-Identifier: Apache-2.0

package format

import (
	"bytes"
	"compress/flate"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestEncodeBlobTriesASample: data that do not shrink are stored as they are, and all
// data are decoded unchanged.
func TestEncodeBlobTriesASample(t *testing.T) {
	random := make([]byte, 32<<10)
	dice := rand.NewChaCha8([32]byte{1})
	_, _ = dice.Read(random) // it never fails
	for _, c := range []struct {
		what string
		data []byte
		how  byte
	}{
		{"random", random, asIs},
		{"text", bytes.Repeat([]byte("all the same "), 4000), zstandard},
		{"text around what is random", slices.Concat(bytes.Repeat([]byte{'a'}, 20<<10), random[:4<<10], bytes.Repeat([]byte{'a'}, 20<<10)), zstandard},
		{"little", bytes.Repeat([]byte{'a'}, worthwhile), zstandard},
		{"less", bytes.Repeat([]byte{'a'}, worthwhile-1), asIs},
		{"nothing", nil, asIs},
	} {
		encoded := EncodeBlob(c.data, true)
		back, err := DecodeBlob(encoded)
		if err != nil || !bytes.Equal(back, c.data) {
			t.Errorf("%s: decoded to %d bytes of %d, %v", c.what, len(back), len(c.data), err)
		}
		if encoded[8] != c.how {
			t.Errorf("%s: compression %d, want %d", c.what, encoded[8], c.how)
		}
	}
}

// TestDeflatedChunks: chunks that earlier releases compressed by deflate are read, and
// refused when they are shorter than their head says.
func TestDeflatedChunks(t *testing.T) {
	data := []byte(strings.Repeat("journal ", 100))
	packed := func(n int) []byte {
		var body bytes.Buffer
		w, err := flate.NewWriter(&body, flate.BestSpeed)
		if err == nil {
			_, err = w.Write(data)
		}
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		out := append(make([]byte, BlobHead), body.Bytes()...)
		putHead(out, deflated, n)
		return out
	}
	if got, err := DecodeBlob(packed(len(data))); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if got, err := DecodeBlob(packed(len(data) + 1)); err == nil {
		t.Errorf("%d bytes of a chunk that has less", len(got))
	}
}
