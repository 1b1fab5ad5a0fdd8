// SPDX-License-Identifier: Apache-2.0

//go:build !failpoints

package failpoint

// Hit marks a point whose caller handles errors. It returns the error that was injected
// there, or nil.
func Hit(Point) error { return nil }

// Pass marks a point whose caller cannot handle an error.
func Pass(Point) {}
