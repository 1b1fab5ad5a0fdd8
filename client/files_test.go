// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
)

// content is a text of n bytes that has no period.
func content(n int) []byte {
	b := make([]byte, n)
	x := uint32(1)
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = "abcdefghijklmnopqrstuvwxyz\n"[(x>>16)%27]
	}
	return b
}

func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256_" + hex.EncodeToString(sum[:])
}

// Files arrive as they were sent, and come back so, in whole and in parts, whatever cuts the
// connections.
func TestFilesThroughCuts(t *testing.T) {
	s := startServer(t)
	direct := s.client()
	data := content(1 << 20)
	path := filepath.Join(t.TempDir(), "a.txt")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	up, err := direct.Files.Upload(t.Context(), f, client.UploadOptions{Name: "a.txt"})
	if err != nil || up.SizeBytes != int64(len(data)) || up.Name != "a.txt" {
		t.Fatal(up, err)
	}
	if again, err := direct.Files.Upload(t.Context(), io.MultiReader(bytes.NewReader(data)), client.UploadOptions{Hash: up.Hash}); err != nil || again.Hash != up.Hash {
		t.Errorf("from a source that is read once: %v, %v", again, err)
	}
	if _, err := direct.Files.Upload(t.Context(), strings.NewReader("other"), client.UploadOptions{Hash: up.Hash}); fault.CodeOf(err) != fault.RequestInvalid {
		t.Errorf("another hash: %v", err)
	}
	empty, err := direct.Files.Upload(t.Context(), strings.NewReader(""), client.UploadOptions{})
	if err != nil || empty.SizeBytes != 0 {
		t.Errorf("an empty file: %+v, %v", empty, err)
	}

	cuts := 0
	for seed := range uint64(10) {
		p := newProxy(t, func() string { return s.address }, 900_000, seed)
		c := open(t, client.Config{URL: p.url(), Key: admin, Attempts: 20})
		var got bytes.Buffer
		if n, err := c.Files.Download(t.Context(), up.Hash, &got); err != nil || n != int64(len(data)) || !bytes.Equal(got.Bytes(), data) {
			t.Fatalf("seed %d: %d bytes, %v", seed, n, err)
		}
		for _, part := range []client.Range{{0, 1}, {10, 500_000}, {1 << 19, 0}, {1<<20 - 1, 1}, {5, 1 << 30}} {
			r, err := c.Files.Open(t.Context(), up.Hash, &part)
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(r)
			_ = r.Close()
			want := data[part.From:]
			if part.N > 0 {
				want = want[:min(part.N, int64(len(want)))]
			}
			if err != nil || !bytes.Equal(b, want) {
				t.Fatalf("seed %d: %+v has %d bytes, %v", seed, part, len(b), err)
			}
		}
		p.mu.Lock()
		cuts += p.cuts
		p.mu.Unlock()
	}
	if cuts < 5 {
		t.Errorf("only %d cuts", cuts)
	}
	if _, err := direct.Files.Open(t.Context(), up.Hash, &client.Range{From: 1 << 20}); fault.CodeOf(err) != fault.RangeInvalid {
		t.Errorf("beyond the end: %v", err)
	}
	if _, err := direct.Files.Open(t.Context(), "sha256_"+strings.Repeat("0", 64), nil); fault.CodeOf(err) != fault.FileNotFound {
		t.Errorf("no such file: %v", err)
	}
	if files, err := client.Collect(direct.Files.List(t.Context(), client.FileQuery{Name: "a.t"}), 0); err != nil || len(files) != 1 {
		t.Errorf("files %v, %v", files, err)
	}
	if err := direct.Files.Delete(t.Context(), up.Hash); err != nil {
		t.Error(err)
	}
	if _, err := direct.Files.Get(t.Context(), up.Hash); fault.CodeOf(err) != fault.FileNotFound {
		t.Errorf("deleted: %v", err)
	}
}

// An upload that is cut off is sent again from where its source stood, and not at all from one
// that cannot go back.
func TestUploadAgain(t *testing.T) {
	s := startServer(t)
	data := content(300_000)
	var sent record[string]
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if sent.add(r.URL.Path)%2 == 1 {
			_, _ = io.CopyN(io.Discard, r.Body, 100_000)
			panic(http.ErrAbortHandler)
		}
		s.api.ServeHTTP(w, r)
	}))
	defer web.Close()
	c := open(t, client.Config{URL: web.URL, Key: admin})
	r := bytes.NewReader(append([]byte("skipped"), data...))
	if _, err := r.Seek(7, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	up, err := c.Files.Upload(t.Context(), r, client.UploadOptions{})
	if n := len(sent.all()); err != nil || up.Hash != hashOf(data) || n != 2 {
		t.Errorf("%+v after %d attempts, %v", up, n, err)
	}
	_, err = c.Files.Upload(t.Context(), io.MultiReader(bytes.NewReader(data)), client.UploadOptions{})
	if n := len(sent.all()); fault.CodeOf(err) != fault.ServerUnreachable || n != 1 {
		t.Errorf("a source that is read once: %v after %d attempts", err, n)
	}
	broken := errors.New("broken")
	if _, err := c.Files.Upload(t.Context(), io.MultiReader(strings.NewReader("x"), iotestReader{broken}), client.UploadOptions{}); fault.CodeOf(err) != fault.FileInvalid || !errors.Is(err, broken) {
		t.Errorf("a source that fails: %v", err)
	}
}

// iotestReader fails.
type iotestReader struct{ err error }

func (r iotestReader) Read([]byte) (int, error) { return 0, r.err }

// What was changed on the way is noticed, in both directions.
func TestChangedOnTheWay(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			_, _ = w.Write([]byte(`{"hash":"sha256_00"}`))
			return
		}
		_, _ = w.Write([]byte("changed"))
	}))
	defer web.Close()
	c := open(t, client.Config{URL: web.URL})
	if _, err := c.Files.Upload(t.Context(), strings.NewReader("x"), client.UploadOptions{}); fault.CodeOf(err) != fault.FileInvalid {
		t.Errorf("upload: %v", err)
	}
	if _, err := c.Files.Download(t.Context(), "sha256_00", io.Discard); fault.CodeOf(err) != fault.FileInvalid {
		t.Errorf("download: %v", err)
	}
}
