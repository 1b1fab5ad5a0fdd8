// SPDX-License-Identifier: Apache-2.0

package signature

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func standard(t *testing.T, id string, at time.Time, body string) http.Header {
	t.Helper()
	w, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	signature, err := w.Sign(id, at, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return http.Header{"Webhook-Id": {id}, "Webhook-Timestamp": {strconv.FormatInt(at.Unix(), 10)}, "Webhook-Signature": {signature}}
}

// A19: the published vectors of Standard Webhooks and of GitHub.
func TestA19_Vectors(t *testing.T) {
	dir := cmp.Or(os.Getenv("ROUX_SHARED"), "../../../shared")
	raw, err := os.ReadFile(filepath.Join(dir, "data", "webhooks", "signature-vectors.json"))
	if err != nil {
		t.Skipf("no vectors: %v", err)
	}
	var v struct {
		Standard struct{ ID, Timestamp, Signature, Body, Secret string } `json:"standard_webhooks"`
		GitHub   struct {
			Secret, Body string
			Signature    string `json:"X-Hub-Signature-256"`
		} `json:"github"`
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	seconds, err := strconv.ParseInt(v.Standard.Timestamp, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	header := http.Header{"Webhook-Id": {v.Standard.ID}, "Webhook-Timestamp": {v.Standard.Timestamp}, "Webhook-Signature": {v.Standard.Signature}}
	s := Scheme{Name: Standard}
	if err := s.Verify(header, []byte(v.Standard.Body), v.Standard.Secret, time.Unix(seconds, 0)); err != nil {
		t.Errorf("the vector of Standard Webhooks: %v", err)
	}
	if err := s.Verify(header, []byte(v.Standard.Body), v.Standard.Secret, time.Now()); !errors.Is(err, ErrTime) {
		t.Errorf("the same much later: %v", err)
	}
	s = Scheme{Name: HMAC, Header: "X-Hub-Signature-256", Prefix: "sha256="}
	header = http.Header{"X-Hub-Signature-256": {v.GitHub.Signature}}
	if err := s.Verify(header, []byte(v.GitHub.Body), v.GitHub.Secret, time.Now()); err != nil {
		t.Errorf("the vector of GitHub: %v", err)
	}
	if err := s.Verify(header, []byte(v.GitHub.Body+"."), v.GitHub.Secret, time.Now()); !errors.Is(err, ErrWrong) {
		t.Errorf("an altered body: %v", err)
	}
}

// A19: what is forged, altered, old, or signed with nothing is refused, also if it is nearly
// right.
func TestA19_Standard(t *testing.T) {
	now, body := time.Unix(1_800_000_000, 0), `{"a":1}`
	good := standard(t, "msg_1", now, body)
	with := func(name, value string) http.Header {
		h := good.Clone()
		h.Set(name, value)
		return h
	}
	signature := good.Get("Webhook-Signature")
	for _, tt := range []struct {
		name   string
		header http.Header
		body   string
		secret string
		at     time.Time
		want   error
	}{
		{"good", good, body, secret, now, nil},
		{"the limit of age", good, body, secret, now.Add(Tolerance), nil},
		{"older", good, body, secret, now.Add(Tolerance + time.Second), ErrTime},
		{"the clock of the sender is ahead", good, body, secret, now.Add(-Tolerance), nil},
		{"further ahead", good, body, secret, now.Add(-Tolerance - time.Second), ErrTime},
		{"two keys in use", with("Webhook-Signature", "v1,AAAA v1a,BBBB "+signature), body, secret, now, nil},
		{"another time", with("Webhook-Timestamp", "1800000001"), body, secret, now, ErrWrong},
		{"another id", with("Webhook-Id", "msg_2"), body, secret, now, ErrWrong},
		{"no id", with("Webhook-Id", ""), body, secret, now, ErrWrong},
		{"no time", with("Webhook-Timestamp", ""), body, secret, now, ErrWrong},
		{"a time that is none", with("Webhook-Timestamp", "soon"), body, secret, now, ErrWrong},
		{"an empty signature", with("Webhook-Signature", ""), body, secret, now, ErrWrong},
		{"without the version", with("Webhook-Signature", strings.TrimPrefix(signature, "v1,")), body, secret, now, ErrWrong},
		{"a truncated signature", with("Webhook-Signature", signature[:len(signature)-4]), body, secret, now, ErrWrong},
		{"an altered body", good, body + " ", secret, now, ErrWrong},
		{"the id moved into the body", with("Webhook-Id", "msg_1."), body[1:], secret, now, ErrWrong},
		{"no secret", good, body, "", now, ErrNoSecret},
		{"an empty key", good, body, "whsec_", now, ErrNoSecret},
		{"a secret of another kind", good, body, "?", now, ErrNoSecret},
	} {
		s := Scheme{Name: Standard}
		if err := s.Verify(tt.header, []byte(tt.body), tt.secret, tt.at); !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
	// An empty key is one that everybody has.
	w, err := standardwebhooks.NewWebhookRaw(nil)
	if err != nil {
		t.Fatal(err)
	}
	forged, _ := w.Sign("msg_1", now, []byte(body))
	s := Scheme{Name: Standard}
	if err := s.Verify(with("Webhook-Signature", forged), []byte(body), "", now); err == nil {
		t.Error("what is signed with nothing is accepted")
	}
}

func TestA19_Headers(t *testing.T) {
	const key, sum = "It's a Secret to Everybody", "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
	sha := Scheme{Name: HMAC, Header: "X-Hub-Signature-256", Prefix: "sha256="}
	plain := Scheme{Name: HMAC, Header: "X-Sum", Encoding: Base64}
	token := Scheme{Name: Token, Header: "X-Gitlab-Token"}
	bearer := Scheme{Name: Token, Header: "Authorization", Prefix: "Bearer "}
	for _, tt := range []struct {
		name   string
		scheme Scheme
		value  string
		secret string
		want   error
	}{
		{"hex", sha, "sha256=" + sum, key, nil},
		{"without the prefix", sha, sum, key, ErrWrong},
		{"another prefix", sha, "sha1=" + sum, key, ErrWrong},
		{"truncated", sha, "sha256=" + sum[:63], key, ErrWrong},
		{"extended", sha, "sha256=" + sum + "00", key, ErrWrong},
		{"only the prefix", sha, "sha256=", key, ErrWrong},
		{"no header", sha, "", key, ErrWrong},
		{"no secret", sha, "sha256=" + sum, "", ErrNoSecret},
		{"base64", plain, "dXEH6g6yUJ/CESIczphLijdXC211hsIsRvQ3nIsEPhc=", key, nil},
		{"hex for base64", plain, sum, key, ErrWrong},
		{"a token", token, key, key, nil},
		{"another token", token, key + ".", key, ErrWrong},
		{"a shorter token", token, key[1:], key, ErrWrong},
		{"no token", token, "", key, ErrWrong},
		{"a token for none", token, "", "", ErrNoSecret},
		{"a bearer", bearer, "Bearer " + key, key, nil},
		{"a bearer without the word", bearer, key, key, ErrWrong},
	} {
		header := http.Header{}
		header.Set(tt.scheme.Header, tt.value)
		if err := tt.scheme.Verify(header, []byte("Hello, World!"), tt.secret, time.Now()); !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
}

func TestCheck(t *testing.T) {
	for want, s := range map[string]Scheme{
		"":                        {Name: HMAC, Header: "X-Sum", Prefix: "v=", Encoding: Base64},
		"want standard, hmac":     {Name: "rsa"},
		"with the token":          {Name: Token},
		"with the signature":      {Name: HMAC, Header: "X Sum"},
		"encoding \"rot13\"":      {Name: HMAC, Header: "X-Sum", Encoding: "rot13"},
		"headers of its own":      {Name: Standard, Header: "X-Sum"},
		"a token has no encoding": {Name: Token, Header: "X-Token", Encoding: Hex},
	} {
		err := s.Check()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", s, err, want)
		}
	}
	s := Scheme{Name: Standard}
	if !s.ValidSecret(secret) || s.ValidSecret("whsec_") || s.ValidSecret("not base64") {
		t.Error("secrets of Standard Webhooks")
	}
}

// What is signed here fits, and nothing else does.
func TestSign(t *testing.T) {
	now, body := time.Now(), []byte(`{"a":1}`)
	secret := "whsec_" + base64.StdEncoding.EncodeToString([]byte("a secret of 24 bytes or so"))
	for _, s := range []Scheme{{Name: Standard}, {Name: HMAC, Header: "X-Signature", Prefix: "sha256="}, {Name: HMAC, Header: "X-Signature", Encoding: Base64}, {Name: Token, Header: "X-Token"}} {
		h := http.Header{}
		if err := s.Sign(h, body, secret, "msg_1", now); err != nil {
			t.Fatal(s, err)
		}
		if err := s.Verify(h, body, secret, now); err != nil {
			t.Error(s, err)
		}
		if err := s.Verify(h, []byte(`{"a":2}`), secret, now); (err == nil) != (s.Name == Token) {
			t.Error(s, err)
		}
		if err := s.Verify(h, body, secret+"x", now); err == nil {
			t.Error(s, "another secret fits")
		}
		if err := s.Sign(http.Header{}, body, "", "msg_1", now); err == nil {
			t.Error(s, "signed without a secret")
		}
	}
}
