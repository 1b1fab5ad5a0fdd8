// SPDX-License-Identifier: Apache-2.0

package access

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"strings"
)

const (
	// tokenPrefix begins every token, so that scanners of repositories and logs find one.
	tokenPrefix = "roux_"
	// keyPrefix begins the id of a key. A token has the id without it.
	keyPrefix = "key_"
	idLength  = 26 // characters of an id without its prefix
	// secretBytes is the size of the random part of a token.
	secretBytes = 32
	// secretLength is how many characters of base64 they are.
	secretLength = 43
)

// newToken returns a token of a key and what is stored of it.
func newToken(id string) (token, hash string) {
	var b [secretBytes]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	token = tokenPrefix + strings.TrimPrefix(id, keyPrefix) + "_" + base64.RawURLEncoding.EncodeToString(b[:])
	return token, hashOf(token)
}

// hashOf returns what is stored of a token.
func hashOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// keyOf returns the id of the key that a token belongs to; ok is false for a text that
// cannot be a token.
func keyOf(token string) (id string, ok bool) {
	rest, ok := strings.CutPrefix(token, tokenPrefix)
	if !ok || len(rest) != idLength+1+secretLength || rest[idLength] != '_' {
		return "", false
	}
	secret, err := base64.RawURLEncoding.DecodeString(rest[idLength+1:])
	if err != nil || len(secret) != secretBytes {
		return "", false
	}
	for _, c := range rest[:idLength] {
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') {
			return "", false
		}
	}
	return keyPrefix + rest[:idLength], true
}

// matches compares a token with a stored hash in constant time.
func matches(token, hash string) bool {
	return subtle.ConstantTimeCompare([]byte(hashOf(token)), []byte(hash)) == 1
}
