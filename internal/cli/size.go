// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strconv"
	"strings"
)

// A byteSize is a flag that takes bytes: 1048576, 1MiB, 512KiB.
type byteSize int64

var sizeUnits = []struct {
	name  string
	bytes int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"", 1}}

func (b *byteSize) String() string {
	for i := len(sizeUnits) - 2; i >= 0; i-- {
		if u := sizeUnits[i]; int64(*b) >= u.bytes && int64(*b)%u.bytes == 0 {
			return strconv.FormatInt(int64(*b)/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(*b), 10)
}

// text names the size for people.
func (b byteSize) text() string {
	if s := b.String(); strings.HasSuffix(s, "B") {
		return s
	}
	return strconv.FormatInt(int64(b), 10) + " bytes"
}

// Set reads a flag's value.
func (b *byteSize) Set(s string) error {
	for _, u := range sizeUnits {
		digits, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n < 0 || n > (1<<62)/u.bytes {
			break
		}
		*b = byteSize(n * u.bytes)
		return nil
	}
	return fmt.Errorf("want a size in bytes such as 4MiB or 4194304")
}

// Type names the value in help.
func (b *byteSize) Type() string { return "size" }
