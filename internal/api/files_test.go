// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"sync"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
)

// X158: files are uploaded, described, downloaded whole and in ranges, and checked by their
// hash.
func TestX158_Files(t *testing.T) {
	s := start(t)
	dev := s.key("acme", access.Developer)
	text := strings.Repeat("0123456789", 1000)
	sum := sha256.Sum256([]byte(text))
	hash := "sha256_" + hex.EncodeToString(sum[:])
	up := s.call(dev, "POST", "/v1/files?name=digits.txt", text, "Content-Type", "text/plain", "X-Content-Sha256", hex.EncodeToString(sum[:])).want(201)
	if up.text("hash") != hash || up.text("name") != "digits.txt" || up.get("sizeBytes") != float64(10000) || up.header.Get("Location") != "/v1/files/"+hash {
		t.Errorf("upload: %s", up.body)
	}
	s.call(dev, "POST", "/v1/files?name=x", "other", "Content-Type", "text/plain", "X-Content-Sha256", hex.EncodeToString(sum[:])).problem(fault.RequestInvalid)
	path := "/v1/files/" + hash + "/content"
	for _, tt := range []struct {
		header, want, part string
		status             int
	}{
		{"", text, "", 200},
		{"bytes=0-9", text[:10], "bytes 0-9/10000", 206},
		{"bytes=9995-", text[9995:], "bytes 9995-9999/10000", 206},
		{"bytes=-3", "789", "bytes 9997-9999/10000", 206},
		{"bytes=9990-20000", text[9990:], "bytes 9990-9999/10000", 206},
		{"bytes=0-1,5-6", text, "", 200}, // more than one range may be ignored
		{"lines=1-2", text, "", 200},
		{"bytes=5-1", text, "", 200},
	} {
		got := s.call(dev, "GET", path, nil, "Range", tt.header).want(tt.status)
		if string(got.body) != tt.want || got.header.Get("Content-Range") != tt.part {
			t.Errorf("%q: %d bytes, %q", tt.header, len(got.body), got.header.Get("Content-Range"))
		}
		// A22: nothing in it runs in the origin of the server.
		if got.header.Get("Content-Disposition") != "attachment" || got.header.Get("X-Content-Type-Options") != "nosniff" || !strings.Contains(got.header.Get("Content-Security-Policy"), "sandbox") {
			t.Errorf("headers: %v", got.header)
		}
	}
	if p := s.call(dev, "GET", path, nil, "Range", "bytes=10000-").problem(fault.RangeInvalid); p.header.Get("Content-Range") != "bytes */10000" {
		t.Errorf("headers: %v", p.header)
	}
	kept := sha256.Sum256([]byte("other")) // it arrived, with the wrong hash
	seen := map[string]bool{hash: true, "sha256_" + hex.EncodeToString(kept[:]): true}
	for _, other := range []string{"a", "b", "c"} {
		seen[s.call(dev, "POST", "/v1/files?name=more", other, "Content-Type", "text/plain").want(201).text("hash")] = true
	}
	next, pages := "/v1/files?limit=2", 0
	for next != "" {
		page := s.call(dev, "GET", next, nil).want(200)
		for _, f := range page.get("data").([]any) {
			h := f.(map[string]any)["hash"].(string)
			if !seen[h] {
				t.Errorf("%s comes twice, or is unknown", h)
			}
			delete(seen, h)
		}
		next = page.text("next")
		pages++
	}
	if len(seen) != 0 || pages != 3 {
		t.Errorf("%d files are missing after %d pages", len(seen), pages)
	}
	s.call(dev, "DELETE", "/v1/files/"+hash, nil).want(204)
	s.call(dev, "GET", path, nil).problem(fault.FileNotFound)
	s.call(dev, "GET", "/v1/files/"+hash[:20], nil).problem(fault.FileNotFound)
}

// I13, A27: a repeated request gets the answer of the first; of a start that is its run, and
// all starts at once have one run.
func TestI13_IdempotencyKeys(t *testing.T) {
	s := start(t)
	dev := s.key("acme", access.Developer)
	once := []string{"Idempotency-Key", "one"}
	first := s.call(dev, "POST", "/v1/recipes", greet, once...).want(201)
	again := s.call(dev, "POST", "/v1/recipes", greet, once...).want(201) // without the key it would be 200
	if again.header.Get("Idempotent-Replayed") != "true" || string(again.body) != string(first.body) || again.header.Get("ETag") != first.header.Get("ETag") {
		t.Errorf("replayed: %v %s", again.header, again.body)
	}
	s.call(dev, "POST", "/v1/recipes", waits, once...).problem(fault.IdempotencyMismatch)
	refused := s.call(dev, "POST", "/v1/recipes", `{"name":"x"}`, "Idempotency-Key", "bad").want(422)
	if got := s.call(dev, "POST", "/v1/recipes", `{"name":"x"}`, "Idempotency-Key", "bad").want(422); got.text("code") != refused.text("code") {
		t.Errorf("replayed: %s", got.body)
	}

	runs, all := map[string]int{}, sync.Mutex{}
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			got, err := s.send(dev, "POST", "/v1/recipes/greet/execute", `{"parameters":{"name":"ana"}}`, once...)
			all.Lock()
			defer all.Unlock()
			if err != nil || got.status != 202 {
				t.Errorf("%d, %v: %s", got.status, err, got.body)
				return
			}
			runs[got.text("executionId")]++
		})
	}
	group.Wait()
	if len(runs) != 1 {
		t.Errorf("one key started %d runs", len(runs))
	}
	s.call(dev, "POST", "/v1/recipes/greet/execute", `{"parameters":{"name":"bob"}}`, once...).problem(fault.IdempotencyMismatch)
}

// A21: a token is shown once, and is in no record, list or document.
func TestA21_TokensAreShownOnce(t *testing.T) {
	s := start(t)
	made := s.call(s.admin, "POST", "/v1/keys", `{"account":"acme","name":"ci","role":"owner","limit":{"credits":5,"reset":"daily"}}`, "Idempotency-Key", "k").want(201)
	token, id := made.text("token"), made.text("id")
	for _, path := range []string{"/v1/keys", "/v1/keys/" + id, "/v1/me"} {
		if got := s.call(token, "GET", path, nil).want(200); strings.Contains(string(got.body), token) {
			t.Errorf("%s shows the token", path)
		}
	}
	// The spending limit of the key: 150 are reserved for a run of 120.
	s.grant("acme", 1000)
	s.call(token, "POST", "/v1/recipes", `{"name":"paid","version":"1.0.0","steps":[{"id":"a","action":{"name":"costly"}}],"creditEstimation":{"strategy":"fixed","fixedCredits":120,"maxCredits":500}}`).want(201)
	if p := s.call(token, "POST", "/v1/recipes/paid/execute", `{}`).problem(fault.InsufficientCredits); p.text("limitSource") != "key:"+id {
		t.Errorf("refused: %s", p.body)
	}
}
