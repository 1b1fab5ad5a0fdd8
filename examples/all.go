// SPDX-License-Identifier: Apache-2.0

//go:build !small

package examples

import "embed"

//go:embed *.yaml *.json *.csv *.pdf *.jpg receipts
var files embed.FS
