// SPDX-License-Identifier: Apache-2.0

package format

import (
	"encoding/binary"
	"errors"

	"github.com/roux-engine/roux/internal/store"
)

// EncodeMark returns what a head has that is in no column of its row: when a user deleted
// the run (a varint), then its labels. nil = it has neither. The bytes are a blob.
func EncodeMark(h *store.Head) []byte {
	if h.Deleted == 0 && h.Labels == "" {
		return nil
	}
	return EncodeBlob(append(binary.AppendVarint(nil, h.Deleted), h.Labels...), false)
}

// DecodeMark completes a head with what EncodeMark returned.
func DecodeMark(mark []byte, h *store.Head) error {
	if mark == nil {
		return nil
	}
	data, err := DecodeBlob(mark)
	if err != nil {
		return err
	}
	n := 0
	if h.Deleted, n = binary.Varint(data); n <= 0 {
		return errors.New("it is malformed")
	}
	h.Labels = string(data[n:])
	return nil
}
