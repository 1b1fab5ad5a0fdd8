// SPDX-License-Identifier: Apache-2.0

package journal

import "encoding/binary"

// RunID is the id of a run as text: "run_" and the 128 bits as 26 characters of 5 bits, the
// first of which holds only 3. The text sorts like the number.
func RunID(b [16]byte) string {
	const alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ" // Crockford's: people can read it to each other
	hi, lo := binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
	out := []byte("run_00000000000000000000000000")
	for i := len(out) - 1; i >= len("run_"); i-- {
		out[i] = alphabet[lo&31]
		lo = lo>>5 | hi<<59
		hi >>= 5
	}
	return string(out)
}
