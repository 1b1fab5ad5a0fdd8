// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/internal/view"
)

// A Size is a flag whose value is a number of bytes: 1048576, 1MiB, 512KiB.
type Size int64

// String implements pflag.Value.
func (b *Size) String() string { return view.ShortBytes(int64(*b)) }

// Set implements pflag.Value.
func (b *Size) Set(s string) error {
	for _, u := range view.ByteUnits {
		digits, ok := strings.CutSuffix(s, u.Name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n < 0 || n > (1<<62)/u.Bytes {
			break
		}
		*b = Size(n * u.Bytes)
		return nil
	}
	return fmt.Errorf("want a size in bytes such as 4MiB or 4194304")
}

// Type implements pflag.Value; help shows it.
func (b *Size) Type() string { return "size" }
