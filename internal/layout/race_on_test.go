// SPDX-License-Identifier: Apache-2.0

//go:build race

package layout

// racing reports whether the race detector slows this build down.
const racing = true
