// SPDX-License-Identifier: Apache-2.0

package program

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
)

// StartHash returns the hash that identifies a request to start a run: two starts with
// one idempotency key are the same if their hashes are equal. The parameters, maxCredits and
// key are those of the request: what becomes of the parameters does not matter. Fields are length-prefixed so that different lists of fields never give
// the same bytes.
func StartHash(st *journal.Start, sent map[string]any, maxCredits int64, key string) (string, error) {
	params, err := jsonx.Canonical(sent)
	if err != nil {
		return "", fault.Wrap(fault.InputInvalid, err, "the parameters are no JSON object: %v", err)
	}
	h := sha256.New()
	put := func(b []byte) {
		h.Write(binary.AppendUvarint(nil, uint64(len(b))))
		h.Write(b)
	}
	put([]byte(st.Account))
	put([]byte(st.PlanHash))
	put([]byte(st.Version))
	put(params)
	for _, f := range st.Files {
		put([]byte(f.Hash))
	}
	if maxCredits != 0 {
		put(binary.AppendVarint(nil, maxCredits))
	}
	if key != "" {
		put([]byte("key " + key))
	}
	if st.NoCache {
		put([]byte("no cache"))
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
