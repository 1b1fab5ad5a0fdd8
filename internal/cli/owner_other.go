// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package cli

import "os"

// ownedByUs: where files have no numbered owner the directory's own rights count.
func ownedByUs(*os.File) error { return nil }
