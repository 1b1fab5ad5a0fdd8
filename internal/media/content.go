// SPDX-License-Identifier: Apache-2.0

package media

import (
	"fmt"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ledongthuc/pdf"
)

// Bounds of one page.
const (
	maxRuns     = 200_000
	maxFormDeep = 8
	maxStates   = 1_000
)

// A run is text shown by one operator, at its place on the page. Coordinates
// are turned so that text runs along u, and v grows upwards.
type run struct {
	u0, u1 float64 // where it begins and ends
	v      float64 // its baseline
	size   float64 // height of the font
	turn   int     // quarter turns of the writing direction
	bold   bool
	text   string
}

// A sheet is what one page shows.
type sheet struct {
	runs    []run
	problem string
}

// interpreter reads the content of pages. The library's own walk measures CID
// fonts wrongly and parses every font again at each use; this one asks it only
// for tokens, filters and character maps.
type interpreter struct {
	fonts    map[string]*font
	text     int // bytes shown so far, over all pages
	shown    int // pages with text
	problems int // pages with a problem
}

// page reads one page; what was read before a problem is kept.
func (in *interpreter) page(p pdf.Page) (s sheet) {
	defer func() {
		if v := recover(); v != nil {
			s.problem = clip(fmt.Sprintf("its content is damaged (%v)", v), 200)
			in.problems++
		}
		if len(s.runs) > 0 {
			in.shown++
		}
	}()
	if p.V.Key("Contents").Kind() == pdf.Null {
		return s
	}
	d := &drawing{in: in, sheet: &s, res: resources(p.V)}
	d.state.ctm, d.state.scale = identity, 1
	d.interpret(p.V.Key("Contents"))
	return s
}

// resources finds the dictionary of a page or of what it inherits from. The
// library's walk up trusts that parents end.
func resources(v pdf.Value) pdf.Value {
	for range maxTreeDepth {
		if v.Kind() != pdf.Dict {
			break
		}
		if r := v.Key("Resources"); !r.IsNull() {
			return r
		}
		v = v.Key("Parent")
	}
	return pdf.Value{}
}

// matrix is [a b c d e f] as the PDF standard writes it.
type matrix [6]float64

var identity = matrix{1, 0, 0, 1, 0, 0}

func (m matrix) mul(n matrix) matrix {
	return matrix{
		m[0]*n[0] + m[1]*n[2], m[0]*n[1] + m[1]*n[3],
		m[2]*n[0] + m[3]*n[2], m[2]*n[1] + m[3]*n[3],
		m[4]*n[0] + m[5]*n[2] + n[4], m[4]*n[1] + m[5]*n[3] + n[5],
	}
}

// textState is what q saves and Q restores.
type textState struct {
	ctm                                    matrix
	font                                   *font
	size, char, word, scale, leading, rise float64
}

type drawing struct {
	in     *interpreter
	sheet  *sheet
	res    pdf.Value
	deep   int
	state  textState
	saved  []textState
	tm, lm matrix // text and line matrix
	inline bool   // inside an inline image, whose bytes look like operators
}

func (d *drawing) interpret(content pdf.Value) {
	pdf.Interpret(content, func(stk *pdf.Stack, op string) {
		n := min(stk.Len(), 8)
		args := make([]pdf.Value, n)
		for i := n - 1; i >= 0; i-- {
			args[i] = stk.Pop()
		}
		for stk.Len() > 0 {
			stk.Pop()
		}
		if d.inline {
			d.inline = op != "EI"
			return
		}
		if len(d.sheet.runs) < maxRuns {
			d.operator(op, args)
		}
	})
}

// operands is how many operands the operators read here have at least.
var operands = map[string]int{
	"cm": 6, "Do": 1, "Tf": 2, "Tc": 1, "Tw": 1, "Tz": 1, "TL": 1, "Ts": 1,
	"TD": 2, "Td": 2, "Tm": 6, "\"": 3, "'": 1, "Tj": 1, "TJ": 1,
}

func (d *drawing) operator(op string, args []pdf.Value) {
	num := func(i int) float64 {
		if f := args[i].Float64(); !math.IsNaN(f) && !math.IsInf(f, 0) {
			return f
		}
		return 0
	}
	last := len(args) - 1
	if len(args) < operands[op] {
		return // a damaged stream; what comes next may be whole
	}
	switch op {
	case "q":
		if len(d.saved) < maxStates {
			d.saved = append(d.saved, d.state)
		}
	case "Q":
		if n := len(d.saved); n > 0 {
			d.state, d.saved = d.saved[n-1], d.saved[:n-1]
		}
	case "cm":
		d.state.ctm = matrix{num(0), num(1), num(2), num(3), num(4), num(5)}.mul(d.state.ctm)
	case "BI":
		d.inline = true
	case "Do":
		d.form(args[last].Name())
	case "BT":
		d.tm, d.lm = identity, identity
	case "Tf":
		d.state.font, d.state.size = d.in.font(d.res, args[last-1].Name()), num(last)
	case "Tc":
		d.state.char = num(last)
	case "Tw":
		d.state.word = num(last)
	case "Tz":
		d.state.scale = num(last) / 100
	case "TL":
		d.state.leading = num(last)
	case "Ts":
		d.state.rise = num(last)
	case "TD":
		d.state.leading = -num(1)
		d.newLine(num(0), num(1))
	case "Td":
		d.newLine(num(0), num(1))
	case "Tm":
		d.tm = matrix{num(0), num(1), num(2), num(3), num(4), num(5)}
		d.lm = d.tm
	case "T*":
		d.newLine(0, -d.state.leading)
	case "\"":
		d.state.word, d.state.char = num(0), num(1)
		d.newLine(0, -d.state.leading)
		d.show(args[last:])
	case "'":
		d.newLine(0, -d.state.leading)
		d.show(args)
	case "Tj":
		d.show(args)
	case "TJ":
		list := make([]pdf.Value, 0, min(args[last].Len(), 10_000))
		for i := range args[last].Len() {
			list = append(list, args[last].Index(i))
		}
		d.show(list)
	}
}

func (d *drawing) newLine(x, y float64) {
	d.lm = matrix{1, 0, 0, 1, x, y}.mul(d.lm)
	d.tm = d.lm
}

// form draws a form XObject: text of letterheads and stamped pages lives there.
func (d *drawing) form(name string) {
	x := d.res.Key("XObject").Key(name)
	if d.deep >= maxFormDeep || x.Kind() != pdf.Stream || x.Key("Subtype").Name() != "Form" {
		return
	}
	inner := &drawing{in: d.in, sheet: d.sheet, res: d.res, deep: d.deep + 1, state: d.state}
	if r := x.Key("Resources"); r.Kind() == pdf.Dict {
		inner.res = r
	}
	if m := x.Key("Matrix"); m.Len() == 6 {
		var form matrix
		for i := range form {
			form[i] = m.Index(i).Float64()
		}
		inner.state.ctm = form.mul(inner.state.ctm)
	}
	inner.interpret(x)
}

// gapInTJ is the kerning, in thousandths of the font size, that stands for a
// space in a TJ array.
const gapInTJ = 180

// show adds one run for the strings of a text operator; numbers between them
// move the pen.
func (d *drawing) show(items []pdf.Value) {
	f := d.state.font
	if f == nil || d.in.text > maxText {
		return
	}
	var text strings.Builder
	begin := d.tm
	for _, item := range items {
		switch item.Kind() {
		case pdf.String:
			raw := item.RawString()
			s, width, chars, spaces := f.decode(raw)
			text.WriteString(s)
			d.advance(width*d.state.size + float64(chars)*d.state.char + float64(spaces)*d.state.word)
		case pdf.Integer, pdf.Real:
			k := item.Float64()
			if k < -gapInTJ && text.Len() > 0 {
				text.WriteByte(' ')
			}
			d.advance(-k / 1000 * d.state.size)
		}
	}
	s := strings.Map(printable, strings.ToValidUTF8(text.String(), ""))
	if strings.TrimSpace(s) == "" {
		return
	}
	d.in.text += len(s)
	from, to := d.place(begin), d.place(d.tm)
	r := run{size: math.Hypot(from[2], from[3]) * d.state.size, bold: f.bold, text: s}
	r.size = math.Abs(r.size)
	if r.size == 0 || math.IsNaN(r.size) || math.IsInf(r.size, 0) {
		return
	}
	angle := math.Atan2(from[1], from[0])
	r.turn = int(math.Round(angle/(math.Pi/2))+4) % 4
	// Turning the page by quarters brings every direction onto the first.
	turned := func(x, y float64) (u, v float64) {
		switch r.turn {
		case 1:
			return y, -x
		case 2:
			return -x, -y
		case 3:
			return -y, x
		}
		return x, y
	}
	r.u0, r.v = turned(from[4], from[5])
	r.u1, _ = turned(to[4], to[5])
	d.sheet.runs = append(d.sheet.runs, r)
}

func (d *drawing) advance(w float64) {
	d.tm = matrix{1, 0, 0, 1, w * d.state.scale, 0}.mul(d.tm)
}

func (d *drawing) place(tm matrix) matrix {
	return matrix{1, 0, 0, 1, 0, d.state.rise}.mul(tm).mul(d.state.ctm)
}

// printable drops what must not reach a terminal or a page: control characters,
// invisible direction marks, private and unassigned glyph codes.
func printable(r rune) rune {
	switch {
	case r == '\t' || r == '\n' || r == '\r' || r == 0xA0:
		return ' '
	case r == 0xAD || r == utf8.RuneError || unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Co, r):
		return -1
	}
	return r
}
