// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"fmt"
	"strings"
)

// A theme is a set of colours.
type theme struct {
	canvas, surface, text, second, border, chip, faint, critical string
	colour                                                       func(Style) string
}

var themes = [2]theme{
	{
		"#f6f7f9", "#ffffff", "#16191d", "#4d5661", "#8a929c", "#eceef1", "#66707d", "#7a5c00",
		func(l Style) string { return l.Light },
	},
	{
		"#0f1115", "#15181d", "#e8eaed", "#a3acb8", "#606a77", "#23272e", "#8b95a3", "#e3c04a",
		func(l Style) string { return l.Dark },
	},
}

const baseCSS = `text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;font-variant-numeric:tabular-nums}
.head{font-size:16px;font-weight:600}.head .second{font-size:12px;font-weight:400}
.name{font-size:13px;font-weight:600}.kind,.word,.group text{font-size:11px}.state{font-weight:500}.sign{fill:none;stroke-width:1.75}
.card{stroke-width:1}.bar{fill:none;stroke-width:3}.group rect,.frame rect{stroke-width:1}
.frame rect{fill:none;stroke-dasharray:1 3}.group.dashed rect{stroke-dasharray:6 4}
.edge path{fill:none;stroke-width:1.25}.edge.reads path{stroke-width:1;stroke-dasharray:4 3}.edge.taken path{stroke-width:2.25}.edge.critical path{stroke-width:3.5}
.edge .tip{stroke:none}
.skipped .card,.blocked .card,.untaken .card,.edge.untaken path,.edge.aside path{stroke-dasharray:5 3}.waiting .card{stroke-dasharray:1.5 2.5}.retrying .bar{stroke-dasharray:3 2}
.critical .card{stroke-width:2.5}
`

// stylesheet is the CSS of both themes. Colours are written out, because not
// every program that shows SVG supports CSS variables.
func stylesheet() string {
	var b strings.Builder
	b.WriteString(baseCSS)
	themes[0].writeCSS(&b)
	b.WriteString("@media(prefers-color-scheme:dark){\n")
	themes[1].writeCSS(&b)
	b.WriteString("}\n")
	return b.String()
}

func (t *theme) writeCSS(b *strings.Builder) {
	fmt.Fprintf(b, ".canvas{fill:%s}.card{fill:%s;stroke:%s}text{fill:%s}.line,.kind,.word,.group text,.second{fill:%s}\n", t.canvas, t.surface, t.border, t.text, t.second)
	fmt.Fprintf(b, ".bar,.sign{stroke:%s}.chip{fill:%s}.group rect{fill:%s;fill-opacity:.04;stroke:%s}.frame rect{stroke:%s}\n", t.border, t.chip, t.text, t.border, t.border)
	fmt.Fprintf(b, ".edge path{stroke:%s}.edge .tip{fill:%s}.edge.taken path{stroke:%s}.edge.taken .tip{fill:%s}\n", t.border, t.border, t.text, t.text)
	fmt.Fprintf(b, ".edge.critical path,.critical .card{stroke:%s}.edge.critical .tip{fill:%s}\n", t.critical, t.critical)
	for _, status := range countOrder {
		c := t.colour(StyleOf(status))
		fmt.Fprintf(b, ".%s .bar,.%s .sign{stroke:%s}.%s .state{fill:%s}\n", status, status, c, status, c)
	}
	fmt.Fprintf(b, ".untaken .name,.untaken .line,.untaken .kind,.untaken text{fill:%s}.untaken .bar,.untaken .sign{stroke:%s}\n", t.faint, t.faint)
}
