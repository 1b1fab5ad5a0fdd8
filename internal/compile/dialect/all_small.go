// SPDX-License-Identifier: Apache-2.0

//go:build small

package dialect

var all = []*Dialect{recipes}
