// SPDX-License-Identifier: Apache-2.0

// Package signature checks who sent a webhook.
//
// It decides what a sender of each scheme must have written into which header, and how old a
// message with a time may be. A check does the same work whatever is wrong: the message is
// authenticated once, with a random key if there is no usable secret, and everything is
// compared in constant time.
//
// It never finds a secret, never shows one in an error, and never decides what a message means.
package signature

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// The names of the schemes.
const (
	Standard = "standard" // Standard Webhooks, with a secret that begins with whsec_
	HMAC     = "hmac"     // HMAC-SHA256 of the body in a header
	Token    = "token"    // the secret itself in a header
)

// The encodings of an HMAC.
const (
	Hex    = "hex"
	Base64 = "base64"
)

// HeaderID is the header with the id of a message of Standard.
const HeaderID = standardwebhooks.HeaderWebhookID

// Tolerance is how far the clock of a sender may be off, and how old a message of Standard may
// be.
const Tolerance = 5 * time.Minute

// What is wrong with a message. That is for logs: a sender learns only that something is.
var (
	ErrWrong    = errors.New("the signature does not fit")
	ErrTime     = errors.New("it is too old, or the clocks differ")
	ErrNoSecret = errors.New("no secret is known that it could be signed with")
)

// A Scheme says how the messages of a sender are signed.
type Scheme struct {
	Name     string `json:"scheme"`             // Standard, HMAC or Token
	Header   string `json:"header,omitempty"`   // of HMAC and Token
	Prefix   string `json:"prefix,omitempty"`   // of the value of that header
	Encoding string `json:"encoding,omitempty"` // of HMAC; "" = Hex
}

// Check returns what is wrong with a scheme.
func (s *Scheme) Check() error {
	switch s.Name {
	case Standard:
		if s.Header != "" || s.Prefix != "" || s.Encoding != "" {
			return fmt.Errorf("the scheme %s has headers of its own: want no header, prefix or encoding", Standard)
		}
		return nil
	case HMAC, Token:
	default:
		return fmt.Errorf("scheme %.40q: want %s, %s or %s", s.Name, Standard, HMAC, Token)
	}
	switch {
	case !HeaderName(s.Header):
		return fmt.Errorf("header: want the name of the header with the %s", map[string]string{HMAC: "signature", Token: "token"}[s.Name])
	case s.Name == HMAC && s.Encoding != "" && s.Encoding != Hex && s.Encoding != Base64:
		return fmt.Errorf("encoding %.40q: want %s or %s", s.Encoding, Hex, Base64)
	case s.Name == Token && s.Encoding != "":
		return errors.New("a token has no encoding")
	}
	return nil
}

// HeaderName reports whether a text can name the header of a scheme: letters, digits, dashes and
// underscores, up to 100.
func HeaderName(text string) bool {
	for _, c := range text {
		if c != '-' && c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return text != "" && len(text) <= 100
}

// ValidSecret reports whether a text can be the secret of the scheme.
func (s *Scheme) ValidSecret(text string) bool {
	_, ok := s.key(text)
	return ok
}

// key returns what a message is authenticated with. Without a usable secret that is a random
// key, which nothing fits.
func (s *Scheme) key(secret string) (key []byte, ok bool) {
	key = []byte(secret)
	if s.Name == Standard {
		var err error
		if key, err = base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_")); err != nil {
			key = nil
		}
	}
	if len(key) > 0 {
		return key, true
	}
	key = make([]byte, sha256.Size)
	_, _ = rand.Read(key) // never fails
	return key, false
}

// Verify checks at a time whether a message is signed with a secret; "" = none is known.
func (s *Scheme) Verify(header http.Header, body []byte, secret string, now time.Time) error {
	key, known := s.key(secret)
	fits, fresh := false, true
	if s.Name == Standard {
		fits, fresh = verifyStandard(header, body, key, now)
	} else {
		fits = s.verifyHeader(header, body, key)
	}
	switch {
	case !known:
		return ErrNoSecret
	case !fits:
		return ErrWrong
	case !fresh:
		return ErrTime
	}
	return nil
}

// Sign writes the headers of a message with an id and a time, as a sender with the secret does.
func (s *Scheme) Sign(header http.Header, body []byte, secret, id string, at time.Time) error {
	key, known := s.key(secret)
	if !known {
		return ErrNoSecret
	}
	if s.Name != Standard {
		header.Set(s.Header, s.Prefix+s.value(body, key))
		return nil
	}
	w, err := standardwebhooks.NewWebhookRaw(key)
	if err != nil {
		return err
	}
	signed, err := w.Sign(id, at, body)
	header.Set(HeaderID, id)
	header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(at.Unix(), 10))
	header.Set(standardwebhooks.HeaderWebhookSignature, signed)
	return err
}

func verifyStandard(header http.Header, body, key []byte, now time.Time) (fits, fresh bool) {
	id := header.Get(HeaderID)
	seconds, timeErr := strconv.ParseInt(header.Get(standardwebhooks.HeaderWebhookTimestamp), 10, 64)
	at := time.Unix(seconds, 0)
	w, err := standardwebhooks.NewWebhookRaw(key)
	if err != nil {
		return false, false
	}
	want, err := w.Sign(id, at, body)
	equal := 0
	for _, got := range strings.Fields(header.Get(standardwebhooks.HeaderWebhookSignature)) { // one for each key in use
		equal |= subtle.ConstantTimeCompare([]byte(got), []byte(want))
	}
	return equal == 1 && err == nil && id != "" && timeErr == nil, now.Sub(at).Abs() <= Tolerance
}

func (s *Scheme) verifyHeader(header http.Header, body, key []byte) bool {
	// The sums have one length, so that the time of comparing them says nothing of a token's.
	a, b := sha256.Sum256([]byte(header.Get(s.Header))), sha256.Sum256([]byte(s.Prefix+s.value(body, key)))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// value is what the header of HMAC or Token has behind its prefix.
func (s *Scheme) value(body, key []byte) string {
	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write(body) // never fails
	switch {
	case s.Name == Token:
		return string(key)
	case s.Encoding == Base64:
		return base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	return hex.EncodeToString(mac.Sum(nil))
}

// Hash names a body: one that comes again has the same name.
func Hash(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}
