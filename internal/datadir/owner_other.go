// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package datadir

import "io/fs"

// noFollow is nothing here: the kind of a file is checked before and after it is opened.
const noFollow = 0

// onlyDir is nothing here: the kind is checked before a directory is opened.
const onlyDir = 0

// ownerOf returns ok = false, because where files have no numbered owner the
// directory's own rights count.
func ownerOf(fs.FileInfo) (uid int, links uint64, ok bool) { return 0, 0, false }
