// SPDX-License-Identifier: Apache-2.0

package blob

import "os"

// TypeOf tells the MIME type of a file that is not in a store, as Put would.
// name is what it is called.
func TypeOf(f *os.File, name string) (string, error) {
	head, err := readHead(f)
	if err != nil {
		return "", storageFault(err, "read %s", CleanName(name))
	}
	return detect(head, CleanName(name), ""), nil
}
