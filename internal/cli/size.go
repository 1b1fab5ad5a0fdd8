// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/internal/view"
)

// A byteSize is a flag that takes bytes: 1048576, 1MiB, 512KiB.
type byteSize int64

func (b *byteSize) String() string { return view.ShortBytes(int64(*b)) }

// text names the size for people.
func (b byteSize) text() string { return view.Bytes(int64(b)) }

// Set reads a flag's value.
func (b *byteSize) Set(s string) error {
	for _, u := range view.ByteUnits {
		digits, ok := strings.CutSuffix(s, u.Name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n < 0 || n > (1<<62)/u.Bytes {
			break
		}
		*b = byteSize(n * u.Bytes)
		return nil
	}
	return fmt.Errorf("want a size in bytes such as 4MiB or 4194304")
}

// Type names the value in help.
func (b *byteSize) Type() string { return "size" }
