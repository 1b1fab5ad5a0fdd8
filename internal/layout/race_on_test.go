// SPDX-License-Identifier: Apache-2.0

//go:build race

package layout

// racing says that the race detector slows this build down.
const racing = true
