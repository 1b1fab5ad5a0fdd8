// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package doctor

// diskOf returns nothing here, because the disk is checked on Linux only.
func diskOf(string) (free uint64, network string, ok bool) { return 0, "", false }
