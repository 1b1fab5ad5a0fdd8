// SPDX-License-Identifier: Apache-2.0

package picture

// icons are the glyphs of statuses as SVG paths, 12 pixels wide and centred at
// (18, 18), because fonts lack some of the characters.
var icons = map[string]string{
	"pending":     "M24 18a6 6 0 1 1 -12 0a6 6 0 1 1 12 0",
	"queued":      "M24 18a6 6 0 0 1 -3 5.2M18 24a6 6 0 0 1 -5.2 -3M12 18a6 6 0 0 1 3 -5.2M18 12a6 6 0 0 1 5.2 3",
	"running":     "M24 18a6 6 0 1 1 -12 0a6 6 0 1 1 12 0M18 12v12M20 12.8v10.4M22 14v8",
	"waiting":     "M13 12h10M13 24h10M14 12l8 12M22 12l-8 12",
	"retrying":    "M23 15a6 6 0 1 0 1 4M23.5 11v4.5h-4.5",
	"completed":   "M12.5 18.5l4 4l7 -9",
	"skipped":     "M12 21q3 -8 6 -4t5.5 1M20.5 14.5l3.5 3.5l-3.5 3.5",
	"blocked":     "M24 18a6 6 0 1 1 -12 0a6 6 0 1 1 12 0M14 22l8 -8",
	"failed":      "M13 13l10 10M23 13l-10 10",
	"timed_out":   "M24 19a6 6 0 1 1 -12 0a6 6 0 1 1 12 0M18 15v4h3M16 11h4",
	"cancelled":   "M24 18a6 6 0 1 1 -12 0a6 6 0 1 1 12 0M15 18h6",
	"invalidated": "M12 16q3 -3 6 0t6 0M12 21q3 -3 6 0t6 0",
}
