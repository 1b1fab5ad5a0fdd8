// SPDX-License-Identifier: Apache-2.0

//go:build !failpoints

package failpoint

// Hit is a point that can return an error.
func Hit(Point) error { return nil }

// Pass is a point that cannot return an error.
func Pass(Point) {}
