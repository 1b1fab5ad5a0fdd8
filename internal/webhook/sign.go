// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// The headers of a message (Standard Webhooks 1.0.0).
const (
	HeaderID        = standardwebhooks.HeaderWebhookID
	HeaderTimestamp = standardwebhooks.HeaderWebhookTimestamp
	HeaderSignature = standardwebhooks.HeaderWebhookSignature
)

// The prefixes of keys in text form.
const (
	secretPrefix = "whsec_"
	publicPrefix = "whpk_"
)

// secretBytes is the size of the shared secret; the specification wants 24 to 64.
const secretBytes = 32

// A keyPair is what messages are signed with: a secret that the receiver shares, and a
// private key whose public one anybody may read.
type keyPair struct {
	Shared []byte `json:"shared"`
	Seed   []byte `json:"seed"` // of an ed25519 key
	// Until is when it signs no more, UTC µs; 0 = it is the present one.
	Until int64 `json:"until,omitempty"`
}

// newKeyPair makes a pair of random keys.
func newKeyPair(rand io.Reader) (keyPair, error) {
	k := keyPair{Shared: make([]byte, secretBytes), Seed: make([]byte, ed25519.SeedSize)}
	for _, b := range [][]byte{k.Shared, k.Seed} {
		if _, err := io.ReadFull(rand, b); err != nil {
			return keyPair{}, fmt.Errorf("make the keys of a webhook: %w", err)
		}
	}
	return k, nil
}

// secret is the shared secret as receivers' libraries take it.
func (k *keyPair) secret() string {
	return secretPrefix + base64.StdEncoding.EncodeToString(k.Shared)
}

// public is the public key as receivers' libraries take it.
func (k *keyPair) public() string {
	key, _ := ed25519.NewKeyFromSeed(k.Seed).Public().(ed25519.PublicKey) // always is one
	return publicPrefix + base64.StdEncoding.EncodeToString(key)
}

// sign returns the signatures of a message at a time, one of each scheme for each pair, as
// the header has them.
func sign(pairs []keyPair, id string, at time.Time, body []byte) (string, error) {
	var all []string
	signed := []byte(id + "." + strconv.FormatInt(at.Unix(), 10) + "." + string(body))
	for i := range pairs {
		w, err := standardwebhooks.NewWebhookRaw(pairs[i].Shared)
		if err != nil {
			return "", err
		}
		v1, err := w.Sign(id, at, body)
		if err != nil {
			return "", err
		}
		v1a := ed25519.Sign(ed25519.NewKeyFromSeed(pairs[i].Seed), signed)
		all = append(all, v1, "v1a,"+base64.StdEncoding.EncodeToString(v1a))
	}
	return strings.Join(all, " "), nil
}
