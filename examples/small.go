// SPDX-License-Identifier: Apache-2.0

//go:build small

package examples

import "embed"

//go:embed report.pdf
var files embed.FS
