// SPDX-License-Identifier: Apache-2.0

package pdftest

import (
	"fmt"
	"strings"

	"github.com/pdfcpu/pdfcpu/pkg/font"
)

// A Page is the content of a page under construction: text at given positions,
// measured with the fonts' metrics.
type Page struct{ strings.Builder }

// pageFonts are the fonts of a Page, by their names in Pages.
var pageFonts = map[string]string{"F1": "Helvetica", "F2": "Helvetica-Bold", "F3": "Helvetica-Oblique", "F4": "Courier"}

// Width returns the width of a text in points.
func Width(face string, size float64, text string) float64 {
	w, err := font.TextWidthFloat(text, pageFonts[face], size)
	if err != nil {
		panic(err)
	}
	return w
}

var pdfLiteral = strings.NewReplacer(`\`, `\\`, "(", `\(`, ")", `\)`, "•", `\225`, "–", `\226`, "é", `\351`)

// Text adds one line.
func (p *Page) Text(face string, size, x, y float64, text string) *Page {
	fmt.Fprintf(p, "BT /%s %g Tf %g %g Td (%s) Tj ET\n", face, size, x, y, pdfLiteral.Replace(text))
	return p
}

// Centred adds one line, centred between x0 and x1.
func (p *Page) Centred(face string, size, x0, x1, y float64, text string) *Page {
	return p.Text(face, size, (x0+x1-Width(face, size, text))/2, y, text)
}

// Column adds a paragraph, justified by wider spaces, and returns the position
// of the next line.
func (p *Page) Column(face string, size, x, y, wide float64, text string) float64 {
	words := strings.Fields(text)
	for len(words) > 0 {
		n := 1
		for n < len(words) && Width(face, size, strings.Join(words[:n+1], " ")) <= wide {
			n++
		}
		line := strings.Join(words[:n], " ")
		stretch := 0.0
		if n < len(words) && n > 1 {
			stretch = (wide - Width(face, size, line)) / float64(n-1)
		}
		fmt.Fprintf(p, "BT /%s %g Tf %.4f Tw %g %g Td (%s) Tj ET\n", face, size, stretch, x, y, pdfLiteral.Replace(line))
		words, y = words[n:], y-1.2*size
	}
	return y
}

// Line adds a rule.
func (p *Page) Line(x0, y0, x1, y1 float64) *Page {
	fmt.Fprintf(p, "0.5 w %g %g m %g %g l S\n", x0, y0, x1, y1)
	return p
}

// Prose returns a paragraph of n sentences that name their part and number.
func Prose(name string, n int) string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("The %s text goes on with sentence %d of this part, which says little but fills its lines well.", name, i+1))
	}
	return strings.Join(out, " ")
}
