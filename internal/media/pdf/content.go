// SPDX-License-Identifier: Apache-2.0

package pdf

import (
	"errors"
	"fmt"
	"math"

	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu/types"

	"github.com/roux-engine/roux/fault"
)

// Limits of one page.
const (
	maxRuns          = 100_000
	maxFormDepth     = 12
	maxStates        = 1_000
	maxOperators     = 3_000_000
	maxMarkedContent = 200
	maxFormCache     = 8 << 20
)

// Limits of all pages together. Content is compressed, and pages may share it,
// but no real file decompresses to much more than this.
const (
	baseContent    = 64 << 20
	contentPerByte = 30 // of the file
	contentPerPage = 8 << 10
)

// A textRun is the text of one show operator at its place on the page.
// Coordinates are rotated so that text runs along u and v grows upwards.
type textRun struct {
	u0, u1   float64 // start and end
	v        float64 // baseline
	size     float64 // font size
	rotation int     // of the writing direction, in quarter rotations
	style    fontStyle
	text     string
	// before and after are set when a space was shown at that end.
	before, after bool
}

// pageContent is the text and the rules that one page shows.
type pageContent struct {
	number  int
	media   rect
	runs    []textRun
	rules   []rule
	problem string
}

// An interpreter reads the content of pages: which text is where. It draws
// nothing and reads no images.
type interpreter struct {
	f                *file
	fonts            map[uintptr]*face
	hiddenLayers     map[uintptr]bool // optional content groups that are off
	forms            map[uintptr][]byte
	formBytes        int
	textBytes        int // text shown so far, over all pages
	contentBytes     int // content read so far, over all pages
	maxContentBytes  int // limit of contentBytes
	pagesWithText    int
	pagesWithProblem int
	needAppearances  bool // the form asks viewers to regenerate appearances
	// State of the current page:
	media     rect
	operators int
	unpacked  int
}

func newInterpreter(f *file, pages int) *interpreter {
	in := &interpreter{f: f, maxContentBytes: baseContent + contentPerByte*f.size + contentPerPage*pages, fonts: map[uintptr]*face{}, hiddenLayers: map[uintptr]bool{}, forms: map[uintptr][]byte{}}
	if root, err := f.xref.Catalog(); err == nil {
		anew, _ := f.get(f.dict(root["AcroForm"])["NeedAppearances"]).(types.Boolean)
		in.needAppearances = bool(anew)
		layers := f.dict(f.dict(root["OCProperties"])["D"])
		for _, o := range f.array(layers["OFF"]) {
			if d := f.dict(o); d != nil {
				in.hiddenLayers[identityOf(d)] = true
			}
		}
	}
	return in
}

// errTooManyOperators ends a page with more drawing operations than any page
// made for people.
var errTooManyOperators = errors.New("it has too many drawing operations; what comes after the first 3 million is missing")

// page reads one page. What was read before a problem is kept. An error
// concerns the file as a whole.
func (in *interpreter) page(number int, n pageNode) (s pageContent, err error) {
	s.number, s.media = number, n.mediaBox
	trouble := func(why string) {
		if s.problem == "" {
			s.problem = oneLine(why) // the text may come from the file
			in.pagesWithProblem++
		}
	}
	defer func() {
		if v := recover(); v != nil {
			trouble(fmt.Sprintf("its content is damaged (%v)", v))
		}
		if len(s.runs) > 0 {
			in.pagesWithText++
		}
	}()
	in.operators, in.unpacked, in.media = 0, 0, n.mediaBox
	content, missing, err := in.contents(n.dict["Contents"])
	if err != nil {
		return s, err
	}
	if missing != "" {
		trouble(missing)
	}
	d := &contentState{in: in, page: &s, res: n.resources}
	d.state.ctm, d.state.scale = identity, 1
	drawn := d.interpret(content)
	if drawn == nil {
		drawn = in.annotations(&s, n)
	}
	if in.contentBytes += len(content); in.contentBytes > in.maxContentBytes {
		drawn = fault.New(fault.FileTooLarge, "the pages of the PDF file unpack to more than %d MiB", in.maxContentBytes>>20)
	}
	if errors.Is(drawn, fault.FileTooLarge) {
		return s, drawn
	}
	if drawn != nil {
		trouble(drawn.Error())
	}
	if in.textBytes > MaxText {
		return s, fault.New(fault.FileTooLarge, "the PDF file has more than %d MiB of text", MaxText>>20)
	}
	return s, nil
}

// contents joins the streams of a page, separated by white space.
func (in *interpreter) contents(o types.Object) (content []byte, missing string, err error) {
	parts := types.Array{o}
	if a := in.f.array(o); a != nil {
		parts = a
	}
	for _, part := range parts {
		sd, ok := in.f.stream(part)
		if !ok {
			if in.f.dangling(part) {
				missing = "a part of its content is not in the file"
			}
			continue
		}
		b, err := in.f.content(sd, maxContent-len(content))
		if errors.Is(err, errContentTooLarge) {
			return nil, "", err
		}
		if err != nil {
			missing = fmt.Sprintf("its content cannot be unpacked (%v)", err)
		}
		if len(parts) == 1 {
			return b, missing, nil
		}
		content = append(append(content, b...), '\n')
	}
	return content, missing, nil
}

// A matrix is [a b c d e f] as in the PDF standard.
type matrix [6]float64

var identity = matrix{1, 0, 0, 1, 0, 0}

func (m matrix) mul(n matrix) matrix {
	return matrix{
		m[0]*n[0] + m[1]*n[2], m[0]*n[1] + m[1]*n[3],
		m[2]*n[0] + m[3]*n[2], m[2]*n[1] + m[3]*n[3],
		m[4]*n[0] + m[5]*n[2] + n[4], m[4]*n[1] + m[5]*n[3] + n[5],
	}
}

// shift returns m translated by x, y in its own units.
func (m matrix) shift(x, y float64) matrix {
	m[4] += x*m[0] + y*m[2]
	m[5] += x*m[1] + y*m[3]
	return m
}

func (m matrix) apply(x, y float64) (float64, float64) {
	return x*m[0] + y*m[2] + m[4], x*m[1] + y*m[3] + m[5]
}

// textState is what the operator q saves and Q restores.
type textState struct {
	ctm                                    matrix
	font                                   *face
	size, char, word, scale, leading, rise float64
	stroked                                bool // text is filled and stroked, to look bold
}

// A contentState is the state of one content stream while it is interpreted.
type contentState struct {
	in     *interpreter
	page   *pageContent
	res    types.Dict
	depth  int
	state  textState
	saved  []textState
	tm, lm matrix // text matrix and line matrix
	path   path
	marked []markedContent
	hidden int // how many enclosing marked contents are hidden
}

// markedContent is a marked piece of content. Its actual text, if it has one,
// replaces the text that it shows.
type markedContent struct {
	actual    string
	hasActual bool
	shown     bool
	hides     bool
}

func (d *contentState) interpret(content []byte) error {
	l := lexer{b: content}
	for {
		op, ok := l.next()
		if !ok {
			return nil
		}
		if d.in.operators++; d.in.operators > maxOperators {
			return errTooManyOperators
		}
		if len(d.page.runs) >= maxRuns {
			return errors.New("it has too many pieces of text; what comes after the first 100,000 is missing")
		}
		if err := d.operator(string(op), l.args); err != nil {
			return err
		}
	}
}

// operands is the minimum number of operands of the operators that are
// interpreted here.
var operands = map[string]int{
	"cm": 6, "Do": 1, "Tf": 2, "Tc": 1, "Tw": 1, "Tz": 1, "TL": 1, "Ts": 1, "Tr": 1,
	"TD": 2, "Td": 2, "Tm": 6, "\"": 3, "'": 1, "Tj": 1, "TJ": 1, "m": 2, "l": 2, "re": 4, "c": 6, "v": 4, "y": 4,
	"BDC": 2,
}

func (d *contentState) operator(op string, args []operand) error {
	if len(args) < operands[op] {
		return nil // a damaged stream; the rest may be undamaged
	}
	num := func(i int) float64 { return args[i].num }
	last := len(args) - 1
	if n := operands[op]; n > 0 && len(args) > n {
		args, last = args[len(args)-n:], n-1
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
	case "Do":
		return d.form(string(args[last].text))
	case "BT":
		d.tm, d.lm = identity, identity
	case "Tf":
		d.state.font, d.state.size = d.in.font(d.res, string(args[last-1].text)), num(last)
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
	case "Tr":
		d.state.stroked = num(last) == 2
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
		d.show(args[last].items)
	case "BMC":
		d.beginMarked(markedContent{})
	case "BDC":
		d.beginMarked(d.properties(string(args[0].text), args[1]))
	case "EMC":
		if n := len(d.marked); n > 0 {
			if d.marked[n-1].hides {
				d.hidden--
			}
			d.marked = d.marked[:n-1]
		}
	default:
		d.draw(op, args)
	}
	return nil
}

func (d *contentState) beginMarked(m markedContent) {
	if len(d.marked) < maxMarkedContent {
		d.marked = append(d.marked, m)
		if m.hides {
			d.hidden++
		}
	}
}

// properties reads the operands of BDC: the actual text of the content that
// follows, or the layer it belongs to.
func (d *contentState) properties(tag string, o operand) (m markedContent) {
	if o.kind != nameOperand {
		m.actual, m.hasActual = normalizeGlyphText(textString(o.actual)), o.actual != nil
		return m
	}
	p := d.in.f.dict(d.in.f.dict(d.res["Properties"])[string(o.text)])
	if tag == "OC" {
		m.hides = d.in.layerHidden(p)
		return m
	}
	if text, ok := p["ActualText"]; ok {
		m.actual, m.hasActual = normalizeGlyphText(d.in.f.text(text)), true
	}
	return m
}

// layerHidden reports whether a layer, or all layers of a membership
// dictionary, are off.
func (in *interpreter) layerHidden(d types.Dict) bool {
	if d == nil {
		return false
	}
	if in.hiddenLayers[identityOf(d)] {
		return true
	}
	groups := in.f.array(d["OCGs"])
	if g := in.f.dict(d["OCGs"]); g != nil {
		return in.hiddenLayers[identityOf(g)]
	}
	for _, o := range groups {
		if g := in.f.dict(o); g == nil || !in.hiddenLayers[identityOf(g)] {
			return false
		}
	}
	return len(groups) > 0
}

func (d *contentState) newLine(x, y float64) {
	d.lm = d.lm.shift(x, y)
	d.tm = d.lm
}

// form interprets a form XObject. Letterheads and stamped pages have their text
// in one.
func (d *contentState) form(name string) error {
	f := d.in.f
	sd, ok := f.stream(f.dict(d.res["XObject"])[name])
	if !ok || f.name(sd.Dict["Subtype"]) != "Form" || d.in.layerHidden(f.dict(sd.Dict["OC"])) {
		return nil
	}
	return d.drawForm(sd, f.matrix(sd.Dict["Matrix"]))
}

func (d *contentState) drawForm(sd types.StreamDict, m matrix) error {
	if d.depth >= maxFormDepth {
		return nil
	}
	content, err := d.in.formContent(sd)
	if err != nil {
		if errors.Is(err, fault.FileTooLarge) {
			return err
		}
		return nil // one unreadable form does not end the page
	}
	d.in.contentBytes += len(content)
	inner := &contentState{in: d.in, page: d.page, res: d.res, depth: d.depth + 1, state: d.state, hidden: d.hidden}
	if r := d.in.f.dict(sd.Dict["Resources"]); r != nil {
		inner.res = r
	}
	inner.state.ctm = m.mul(d.state.ctm)
	return inner.interpret(content)
}

// formContent decompresses a form. A form that is used on many pages is
// decompressed once.
func (in *interpreter) formContent(sd types.StreamDict) ([]byte, error) {
	id := identityOf(sd.Dict)
	if b, ok := in.forms[id]; ok {
		return b, nil
	}
	b, err := in.f.content(sd, maxContent)
	if err != nil {
		return nil, err
	}
	if in.unpacked += len(b); in.unpacked > maxPageContent {
		return nil, errContentTooLarge
	}
	if in.formBytes+len(b) <= maxFormCache {
		in.formBytes += len(b)
		in.forms[id] = b
	}
	return b, nil
}

// Gaps within a baseline, in units of the font size: from gapSpace on a space
// is added; from gapFragment on another fragment of the line begins.
const (
	gapSpace    = 0.15
	gapFragment = 0.85
)

// show adds text runs for the strings of a text operator; numbers between the
// strings move the pen.
func (d *contentState) show(items []operand) {
	f := d.state.font
	if f == nil || d.in.textBytes > MaxText {
		return
	}
	m := d.tm.mul(d.state.ctm)
	x, y := m.apply(0, d.state.rise)
	ex, ey, height := m[0], m[1], math.Hypot(m[2], m[3])
	if f.vertical {
		ex, ey, height = -m[2], -m[3], math.Hypot(m[0], m[1])
	}
	unit := math.Hypot(ex, ey)
	rotation := int(math.Round(math.Atan2(ey, ex)/(math.Pi/2))+4) % 4
	w := runBuilder{d: d, unit: unit}
	w.u, w.run.v = toTextAxes(rotation, x, y)
	w.run.size, w.run.rotation, w.run.style = math.Abs(height*d.state.size)*f.scale, rotation, f.style
	if d.state.stroked {
		w.run.style |= bold
	}
	w.visible = d.hidden == 0 && unit > 0 && w.run.size > 0 && !math.IsNaN(w.u+w.run.v+w.run.size) && !math.IsInf(w.u+w.run.v+w.run.size, 0)
	moved := 0.0
	for _, item := range items {
		switch item.kind {
		case stringOperand:
			moved += w.string(f, item.text)
		case numberOperand:
			step := -item.num / 1000 * d.state.size
			if !f.vertical {
				step *= d.state.scale
			}
			w.u += step * unit
			moved += step
		}
	}
	w.flush()
	if f.vertical {
		d.tm = d.tm.shift(0, -moved)
	} else {
		d.tm = d.tm.shift(moved, 0)
	}
}

// toTextAxes rotates x, y by quarter turns so that text runs along u.
func toTextAxes(rotation int, x, y float64) (u, v float64) {
	switch rotation {
	case 1:
		return y, -x
	case 2:
		return -x, -y
	case 3:
		return -y, x
	}
	return x, y
}
