// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package media

// lowerLimits does nothing here: watch ends a child that grows, and the parent
// one that hangs.
func lowerLimits(int64) {}
