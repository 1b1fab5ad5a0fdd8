// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
)

// A Listener makes the messages that a hook would be sent, for a program that follows the feed
// of an account itself, because the server cannot reach it. It is safe for concurrent use.
type Listener struct {
	hook Hook
	key  keyPair
}

// A Message is what a receiver is sent.
type Message struct {
	ID   string
	Type string
	Body []byte
}

// NewListener returns a listener for what a user says of a hook, whose URL need not be set.
// secret is what signs; "" = a new one.
func NewListener(s *Spec, secret string) (*Listener, error) {
	l := &Listener{hook: Hook{ID: IDPrefix + "listen", URL: "http://localhost/", Payload: Thin, Enabled: true}}
	if err := l.hook.apply(s, 0); err != nil {
		return nil, err
	}
	if secret == "" {
		k, err := newKeyPair(rand.Reader)
		if err != nil {
			return nil, err
		}
		l.key.Shared = k.Shared
	} else {
		text, ok := strings.CutPrefix(secret, secretPrefix)
		shared, err := base64.StdEncoding.DecodeString(text)
		if !ok || err != nil || len(shared) < 24 || len(shared) > 64 {
			return nil, fault.New(fault.InputInvalid, "the secret of a webhook is %s and 24 to 64 bytes in base64", secretPrefix)
		}
		l.key.Shared = shared
	}
	// Both keys follow from the secret, so that one that is kept verifies both schemes.
	seed := sha256.Sum256(append([]byte("v1a "), l.key.Shared...))
	l.key.Seed = seed[:ed25519.SeedSize]
	return l, nil
}

// Secret is what verifies signatures of the scheme v1.
func (l *Listener) Secret() string { return l.key.secret() }

// PublicKey verifies signatures of the scheme v1a.
func (l *Listener) PublicKey() string { return l.key.public() }

// Message returns the message that tells of a change; nil = the listener is not told of it.
// execution returns the run as it is shown, and is called for a full message only.
func (l *Listener) Message(c *store.Change, execution func() (json.RawMessage, error)) (*Message, error) {
	e := EventOf(c)
	if ok, err := l.hook.matches(&e, func() (map[string]string, error) { return nil, nil }); !ok || err != nil {
		return nil, err
	}
	var shown json.RawMessage
	if l.hook.Payload == Full && c.Run != "" && e.Type != RunDeleted && e.Type != RunRemoved {
		var err error
		if shown, err = execution(); err != nil {
			return nil, err
		}
	}
	body, err := l.hook.body(&e, shown)
	return &Message{message(l.hook.ID, &e), e.Type, body}, err
}

// Request returns the headers of a message that is sent at a time.
func (l *Listener) Request(m *Message, at time.Time) (http.Header, error) {
	signature, err := sign([]keyPair{l.key}, m.ID, at, m.Body)
	return headers(m.ID, at, signature), err
}

// headers are those of a request that sends a message.
func headers(message string, at time.Time, signature string) http.Header {
	h := http.Header{}
	h.Set("Content-Type", "application/json")
	h.Set("User-Agent", "Roux-Webhooks/1")
	h.Set(HeaderID, message)
	h.Set(HeaderTimestamp, strconv.FormatInt(at.Unix(), 10))
	h.Set(HeaderSignature, signature)
	return h
}
