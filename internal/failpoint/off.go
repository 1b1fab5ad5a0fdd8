// SPDX-License-Identifier: Apache-2.0

//go:build !failpoints

package failpoint

// Hit passes a point that can fail.
func Hit(Point) error { return nil }

// Pass passes a point that cannot fail.
func Pass(Point) {}
