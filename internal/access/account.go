// SPDX-License-Identifier: Apache-2.0

package access

import (
	"fmt"
	"strings"
)

// maxAccountName bounds the name of an account.
const maxAccountName = 64

// CheckAccount reports what is wrong with the name of an account. Names are shown in
// messages and typed in commands, so only few characters are allowed.
func CheckAccount(name string) error {
	ok := name != "" && len(name) <= maxAccountName
	for i, c := range name {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		ok = ok && (letter || i > 0 && strings.ContainsRune("._-@", c))
	}
	if !ok {
		return fmt.Errorf("want a name of at most %d letters, digits, '.', '_', '-' and '@' that begins with a letter or digit", maxAccountName)
	}
	return nil
}
