// SPDX-License-Identifier: Apache-2.0

package jobapi

import (
	"cmp"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/signature"
)

// The schemes of signatures.
const (
	Standard = signature.Standard
	HMAC     = signature.HMAC
	Fal      = "fal" // ed25519, by the keys that fal publishes
)

// ErrSignature says that a webhook does not come from the service, or nobody can know.
var ErrSignature = errors.New("the webhook is not signed by the service")

type hook struct {
	Webhook
	job *expr.Program
}

func (b *builder) hook(w *Webhook) *hook {
	h := &hook{Webhook: *w, job: b.reading("webhook.job", w.Job, []string{"body"})}
	h.Encoding = cmp.Or(w.Encoding, "hex")
	switch w.Signature {
	case Standard, HMAC:
		b.check("webhook.secret_env", secretForm.MatchString(w.SecretEnv), "want the name of a variable that begins with ROUX_WEBHOOK_; the secret itself is not written into files")
	case Fal:
		b.check("webhook.keys", strings.HasPrefix(w.Keys, "http"), "want the address of the keys")
	default:
		b.wrong("webhook.signature", fmt.Errorf("%.40q: want %s, %s or %s; a webhook that is not signed is of no use, because anybody could send it", w.Signature, Standard, HMAC, Fal))
	}
	if w.Signature == HMAC {
		b.check("webhook.header", headerForm.MatchString(w.Header), "want the name of the header with the signature")
		b.check("webhook.encoding", h.Encoding == "hex" || h.Encoding == "base64", "want hex or base64")
	}
	return h
}

// Hooks returns what webhooks are signed with; ok is false if there are none.
func (c *Compiled) Hooks() (w Webhook, ok bool) {
	if c.hook == nil {
		return Webhook{}, false
	}
	return c.hook.Webhook, true
}

// Keys are what the signature of a webhook is checked with.
type Keys struct {
	Secret string              // of Standard and HMAC; "" = none is known
	Public []ed25519.PublicKey // of Fal
}

// Receive checks the signature of a webhook at a time, and returns the id of its job and that of
// the delivery. The error wraps ErrSignature.
func (c *Compiled) Receive(header http.Header, body []byte, keys *Keys, now time.Time) (job, delivery string, err error) {
	if c.hook == nil {
		return "", "", ErrSignature
	}
	switch c.hook.Signature {
	case Standard:
		delivery, err = verifyStandard(header, body, keys.Secret)
	case HMAC:
		delivery, err = c.hook.verifyHMAC(header, body, keys.Secret)
	case Fal:
		delivery, err = verifyFal(header, body, keys.Public, now)
	}
	if err != nil {
		return "", "", fmt.Errorf("%w: %w", ErrSignature, err)
	}
	vars, err := responseVars(body)
	if err == nil {
		job, err = idOf(c.hook.job, vars)
	}
	if err != nil {
		return "", "", fmt.Errorf("%w: %w", ErrSignature, err)
	}
	return job, delivery, nil
}

// Sign writes the headers of a webhook with an id and a time, as the service does that has the
// secret. Only the service itself can sign what has the scheme Fal.
func (w *Webhook) Sign(header http.Header, body []byte, secret, id string, at time.Time) error {
	if w.Signature == Fal {
		return errors.New("only fal itself has the key that signs its webhooks")
	}
	scheme := w.scheme()
	return scheme.Sign(header, body, secret, id, at)
}

func (w *Webhook) scheme() signature.Scheme {
	if w.Signature == Standard {
		return signature.Scheme{Name: Standard}
	}
	return signature.Scheme{Name: HMAC, Header: w.Header, Prefix: w.Prefix, Encoding: w.Encoding}
}

// verifyStandard checks a signature of Standard Webhooks.
func verifyStandard(header http.Header, body []byte, secret string) (string, error) {
	scheme := signature.Scheme{Name: signature.Standard}
	return header.Get(signature.HeaderID), scheme.Verify(header, body, secret, time.Now())
}

func (h *hook) verifyHMAC(header http.Header, body []byte, secret string) (string, error) {
	scheme := h.scheme()
	// It has no id and no time: the same body is the same delivery.
	return signature.Hash(body), scheme.Verify(header, body, secret, time.Now())
}

// verifyFal checks a signature of fal (https://docs.fal.ai/model-apis/model-endpoints/webhooks).
func verifyFal(header http.Header, body []byte, keys []ed25519.PublicKey, now time.Time) (string, error) {
	id, user, at := header.Get("X-Fal-Webhook-Request-Id"), header.Get("X-Fal-Webhook-User-Id"), header.Get("X-Fal-Webhook-Timestamp")
	sum := sha256.Sum256(body)
	message := []byte(strings.Join([]string{id, user, at, hex.EncodeToString(sum[:])}, "\n"))
	signed, err := hex.DecodeString(header.Get("X-Fal-Webhook-Signature"))
	fits := false
	for _, key := range keys {
		fits = fits || ed25519.Verify(key, message, signed)
	}
	seconds, timeErr := strconv.ParseInt(at, 10, 64)
	switch {
	case err != nil || !fits:
		return "", errors.New("the signature does not fit")
	case timeErr != nil || now.Sub(time.Unix(seconds, 0)).Abs() > signature.Tolerance:
		return "", errors.New("it is too old, or the clocks differ")
	}
	return id, nil
}

// ParseKeys reads the ed25519 keys of a JSON Web Key Set (RFC 8037). Others are left out.
func ParseKeys(set []byte) (keys []ed25519.PublicKey, err error) {
	var read struct {
		Keys []struct {
			Curve string `json:"crv"`
			X     string `json:"x"`
		} `json:"keys"`
	}
	if err := json.Unmarshal(set, &read); err != nil {
		return nil, errors.New("the keys of the service are no JSON")
	}
	for _, k := range read.Keys {
		x, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(k.X, "="))
		if err == nil && len(x) == ed25519.PublicKeySize && (k.Curve == "" || k.Curve == "Ed25519") {
			keys = append(keys, x)
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("the service publishes no key that is known here")
	}
	return keys, nil
}
