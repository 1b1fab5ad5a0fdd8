// SPDX-License-Identifier: Apache-2.0

package blob

import "os"

// TypeOf returns the MIME type that Put would give a file. name is the file's name.
func TypeOf(f *os.File, name string) (string, error) {
	head, err := readHead(f)
	if err != nil {
		return "", storageFault(err, "read %s", CleanName(name))
	}
	return detect(head, CleanName(name), ""), nil
}
