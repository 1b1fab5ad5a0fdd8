// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// The published vector of the scheme (Svix, MIT).
func TestSignatureVector(t *testing.T) {
	key, err := base64.StdEncoding.DecodeString("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	pair := keyPair{Shared: key, Seed: make([]byte, ed25519.SeedSize)}
	got, err := sign([]keyPair{pair}, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	const want = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	if err != nil || !strings.HasPrefix(got, want+" v1a,") {
		t.Errorf("the signature is %s, %v; want %s", got, err, want)
	}
}

// verifyPublic checks a v1a signature as a receiver with the public key does.
func verifyPublic(public string, headers http.Header, body []byte) bool {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(public, publicPrefix))
	if err != nil || len(key) != ed25519.PublicKeySize {
		return false
	}
	for _, s := range strings.Split(headers.Get(HeaderSignature), " ") {
		text, ok := strings.CutPrefix(s, "v1a,")
		signature, err := base64.StdEncoding.DecodeString(text)
		if ok && err == nil && ed25519.Verify(key, []byte(headers.Get(HeaderID)+"."+headers.Get(HeaderTimestamp)+"."+string(body)), signature) {
			return true
		}
	}
	return false
}

// A19, as a receiver sees our messages: both schemes verify, those of the pair before a
// rotation too; a message that was forged, replayed, cut or lengthened does not.
func TestA19_Signatures(t *testing.T) {
	old, err := newKeyPair(bytes.NewReader(bytes.Repeat([]byte{7}, 64)))
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := newKeyPair(bytes.NewReader(bytes.Repeat([]byte{9}, 64)))
	if err != nil {
		t.Fatal(err)
	}
	body, now := []byte(`{"type":"run.completed"}`), time.Now()
	headers := func(id string, at time.Time, signature string) http.Header {
		h := http.Header{}
		h.Set(HeaderID, id)
		h.Set(HeaderTimestamp, strconv.FormatInt(at.Unix(), 10))
		h.Set(HeaderSignature, signature)
		return h
	}
	both, err := sign([]keyPair{fresh, old}, "msg_1", now, body)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(strings.Split(both, " ")); n != 4 {
		t.Errorf("%d signatures of two pairs: %s", n, both)
	}
	stranger, err := newKeyPair(bytes.NewReader(bytes.Repeat([]byte{5}, 64)))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		keys    keyPair
		headers http.Header
		body    []byte
		v1, v1a bool
	}{
		{"the new pair", fresh, headers("msg_1", now, both), body, true, true},
		{"the old pair", old, headers("msg_1", now, both), body, true, true},
		{"another key", stranger, headers("msg_1", now, both), body, false, false},
		{"another message", fresh, headers("msg_2", now, both), body, false, false},
		{"another time", fresh, headers("msg_1", now.Add(time.Second), both), body, false, false},
		{"cut", fresh, headers("msg_1", now, both), body[:len(body)-1], false, false},
		{"longer", fresh, headers("msg_1", now, both), append(bytes.Clone(body), ' '), false, false},
		{"no signature", fresh, headers("msg_1", now, ""), body, false, false},
		{"an empty signature", fresh, headers("msg_1", now, "v1, v1a,"), body, false, false},
		{"the schemes exchanged", fresh, headers("msg_1", now, strings.NewReplacer("v1,", "v1a,", "v1a,", "v1,").Replace(both)), body, false, false},
	} {
		receiver, err := standardwebhooks.NewWebhook(tt.keys.secret())
		if err != nil {
			t.Fatal(err)
		}
		if err := receiver.Verify(tt.body, tt.headers); (err == nil) != tt.v1 {
			t.Errorf("%s: v1: %v", tt.name, err)
		}
		if ok := verifyPublic(tt.keys.public(), tt.headers, tt.body); ok != tt.v1a {
			t.Errorf("%s: v1a verifies: %v", tt.name, ok)
		}
	}
	// Replayed after six minutes, or from a clock that is six minutes ahead: the receiver's
	// library refuses the time.
	receiver, err := standardwebhooks.NewWebhook(fresh.secret())
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []time.Time{now.Add(-6 * time.Minute), now.Add(6 * time.Minute)} {
		signature, err := sign([]keyPair{fresh}, "msg_1", at, body)
		if err != nil || receiver.Verify(body, headers("msg_1", at, signature)) == nil {
			t.Errorf("a message of %s is taken at %s (%v)", at, now, err)
		}
	}
}

// A rotation keeps the pair before for a while, and no more than a few.
func TestRotation(t *testing.T) {
	now := int64(1_000_000_000)
	pair := func(b byte) keyPair { return keyPair{Shared: []byte{b}, Seed: make([]byte, ed25519.SeedSize)} }
	shown := func(pairs []keyPair) (text string) {
		for _, p := range pairs {
			text += string(p.Shared)
		}
		return text
	}
	k := keys{Pairs: []keyPair{pair('a')}}
	k.rotate(pair('b'), now, time.Hour)
	k.rotate(pair('c'), now+1, 2*time.Hour)
	hour := time.Hour.Microseconds()
	for _, tt := range []struct {
		at   int64
		want string
	}{{now + 1, "cba"}, {now + hour - 1, "cba"}, {now + hour, "cb"}, {now + 1 + 2*hour, "c"}} {
		if got := shown(k.valid(tt.at)); got != tt.want {
			t.Errorf("%d µs later %q sign, want %q", tt.at-now, got, tt.want)
		}
	}
	// A leaked key ends at once, and those before it.
	k.rotate(pair('d'), now+2, 0)
	if got := shown(k.valid(now + 2)); got != "d" || len(k.public()) != 1 {
		t.Errorf("%q sign, and %d public keys are shown", got, len(k.public()))
	}
	for c := range byte(20) {
		k.rotate(pair('e'+c), now+3, time.Hour)
	}
	if got := shown(k.valid(now + 3)); got != "xwvut" {
		t.Errorf("%q sign after many rotations", got)
	}
}
