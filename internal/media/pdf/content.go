// SPDX-License-Identifier: Apache-2.0

package pdf

import (
	"errors"
	"fmt"
	"math"

	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu/types"

	"github.com/roux-engine/roux/fault"
)

// Bounds of one page.
const (
	maxRuns      = 100_000
	maxFormDeep  = 12
	maxStates    = 1_000
	maxOperators = 3_000_000
	maxMarks     = 200
	maxFormCache = 8 << 20
)

// Bounds of all pages together: content is packed, and pages may share it, but
// no sound file unpacks to much more than this.
const (
	baseContent    = 64 << 20
	contentPerByte = 30 // of the file
	contentPerPage = 8 << 10
)

// A run is text shown at one go, at its place on the page. Coordinates are
// turned so that text runs along u, and v grows upwards.
type run struct {
	u0, u1 float64 // where it begins and ends
	v      float64 // its baseline
	size   float64 // height of the font
	turn   int     // quarter turns of the writing direction
	look   emphasis
	text   string
	// before and after say that a space was shown at its ends.
	before, after bool
}

// A sheet is what one page shows.
type sheet struct {
	number  int
	media   rect
	runs    []run
	rules   []rule
	problem string
}

// interpreter reads the content of pages: where which text stands. It draws
// nothing and reads no image.
type interpreter struct {
	f         *file
	fonts     map[uintptr]*face
	hidden    map[uintptr]bool // layers that are switched off
	forms     map[uintptr][]byte
	formBytes int
	text      int  // bytes shown so far, over all pages
	spent     int  // bytes of content read so far, over all pages
	budget    int  // what they may come to
	shown     int  // pages with text
	problems  int  // pages with a problem
	redrawn   bool // the fields of the form are to be drawn anew
	// Of this page:
	media     rect
	operators int
	unpacked  int
}

func newInterpreter(f *file, pages int) *interpreter {
	in := &interpreter{f: f, budget: baseContent + contentPerByte*f.size + contentPerPage*pages, fonts: map[uintptr]*face{}, hidden: map[uintptr]bool{}, forms: map[uintptr][]byte{}}
	if root, err := f.x.Catalog(); err == nil {
		anew, _ := f.get(f.dict(root["AcroForm"])["NeedAppearances"]).(types.Boolean)
		in.redrawn = bool(anew)
		layers := f.dict(f.dict(root["OCProperties"])["D"])
		for _, o := range f.array(layers["OFF"]) {
			if d := f.dict(o); d != nil {
				in.hidden[identityOf(d)] = true
			}
		}
	}
	return in
}

// errBusy ends a page that has more to draw than any page for readers.
var errBusy = errors.New("it has too many drawing operations; what comes after the first 3 million is missing")

// page reads one page; what was read before a problem is kept. The error is of
// the file as a whole.
func (in *interpreter) page(number int, n node) (s sheet, err error) {
	s.number, s.media = number, n.media
	trouble := func(why string) {
		if s.problem == "" {
			s.problem = oneLine(why) // it may quote the file
			in.problems++
		}
	}
	defer func() {
		if v := recover(); v != nil {
			trouble(fmt.Sprintf("its content is damaged (%v)", v))
		}
		if len(s.runs) > 0 {
			in.shown++
		}
	}()
	in.operators, in.unpacked, in.media = 0, 0, n.media
	content, missing, err := in.contents(n.dict["Contents"])
	if err != nil {
		return s, err
	}
	if missing != "" {
		trouble(missing)
	}
	d := &drawing{in: in, sheet: &s, res: n.resources}
	d.state.ctm, d.state.scale = identity, 1
	drawn := d.interpret(content)
	if drawn == nil {
		drawn = in.annotations(&s, n)
	}
	if in.spent += len(content); in.spent > in.budget {
		drawn = fault.New(fault.FileTooLarge, "the pages of the PDF file unpack to more than %d MiB", in.budget>>20)
	}
	if errors.Is(drawn, fault.FileTooLarge) {
		return s, drawn
	}
	if drawn != nil {
		trouble(drawn.Error())
	}
	if in.text > MaxText {
		return s, fault.New(fault.FileTooLarge, "the PDF file has more than %d MiB of text", MaxText>>20)
	}
	return s, nil
}

// contents puts the streams of a page together, with a space between them.
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
		if errors.Is(err, errLong) {
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

// shift is m moved by x, y in its own units.
func (m matrix) shift(x, y float64) matrix {
	m[4] += x*m[0] + y*m[2]
	m[5] += x*m[1] + y*m[3]
	return m
}

func (m matrix) apply(x, y float64) (float64, float64) {
	return x*m[0] + y*m[2] + m[4], x*m[1] + y*m[3] + m[5]
}

// textState is what q saves and Q restores.
type textState struct {
	ctm                                    matrix
	font                                   *face
	size, char, word, scale, leading, rise float64
	stroked                                bool // letters are filled and outlined, to look bold
}

type drawing struct {
	in     *interpreter
	sheet  *sheet
	res    types.Dict
	deep   int
	state  textState
	saved  []textState
	tm, lm matrix // text and line matrix
	path   path
	marks  []mark
	hidden int // marks around this place that hide what they hold
}

// A mark surrounds a piece of content. One with actual text stands for it.
type mark struct {
	actual string
	is     bool // there is an actual text
	told   bool
	hides  bool
}

func (d *drawing) interpret(content []byte) error {
	l := lexer{b: content}
	for {
		op, ok := l.next()
		if !ok {
			return nil
		}
		if d.in.operators++; d.in.operators > maxOperators {
			return errBusy
		}
		if len(d.sheet.runs) >= maxRuns {
			return errors.New("it has too many pieces of text; what comes after the first 100,000 is missing")
		}
		if err := d.operator(string(op), l.args); err != nil {
			return err
		}
	}
}

// operands is how many operands the operators read here have at least.
var operands = map[string]int{
	"cm": 6, "Do": 1, "Tf": 2, "Tc": 1, "Tw": 1, "Tz": 1, "TL": 1, "Ts": 1, "Tr": 1,
	"TD": 2, "Td": 2, "Tm": 6, "\"": 3, "'": 1, "Tj": 1, "TJ": 1, "m": 2, "l": 2, "re": 4, "c": 6, "v": 4, "y": 4,
	"BDC": 2,
}

func (d *drawing) operator(op string, args []operand) error {
	if len(args) < operands[op] {
		return nil // a damaged stream; what comes next may be whole
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
		d.mark(mark{})
	case "BDC":
		d.mark(d.properties(string(args[0].text), args[1]))
	case "EMC":
		if n := len(d.marks); n > 0 {
			if d.marks[n-1].hides {
				d.hidden--
			}
			d.marks = d.marks[:n-1]
		}
	default:
		d.draw(op, args)
	}
	return nil
}

func (d *drawing) mark(m mark) {
	if len(d.marks) < maxMarks {
		d.marks = append(d.marks, m)
		if m.hides {
			d.hidden++
		}
	}
}

// properties reads what BDC says of the content that follows: a text to put in
// its place, or the layer it belongs to.
func (d *drawing) properties(tag string, o operand) (m mark) {
	if o.kind != nameOperand {
		m.actual, m.is = letters(textString(o.actual)), o.actual != nil
		return m
	}
	p := d.in.f.dict(d.in.f.dict(d.res["Properties"])[string(o.text)])
	if tag == "OC" {
		m.hides = d.in.layerHidden(p)
		return m
	}
	if text, ok := p["ActualText"]; ok {
		m.actual, m.is = letters(d.in.f.text(text)), true
	}
	return m
}

// layerHidden says whether a layer, or all layers of a membership, are off.
func (in *interpreter) layerHidden(d types.Dict) bool {
	if d == nil {
		return false
	}
	if in.hidden[identityOf(d)] {
		return true
	}
	groups := in.f.array(d["OCGs"])
	if g := in.f.dict(d["OCGs"]); g != nil {
		return in.hidden[identityOf(g)]
	}
	for _, o := range groups {
		if g := in.f.dict(o); g == nil || !in.hidden[identityOf(g)] {
			return false
		}
	}
	return len(groups) > 0
}

func (d *drawing) newLine(x, y float64) {
	d.lm = d.lm.shift(x, y)
	d.tm = d.lm
}

// form draws a form XObject: text of letterheads and stamped pages lives there.
func (d *drawing) form(name string) error {
	f := d.in.f
	sd, ok := f.stream(f.dict(d.res["XObject"])[name])
	if !ok || f.name(sd.Dict["Subtype"]) != "Form" || d.in.layerHidden(f.dict(sd.Dict["OC"])) {
		return nil
	}
	return d.drawForm(sd, f.matrix(sd.Dict["Matrix"]))
}

func (d *drawing) drawForm(sd types.StreamDict, m matrix) error {
	if d.deep >= maxFormDeep {
		return nil
	}
	content, err := d.in.formContent(sd)
	if err != nil {
		if errors.Is(err, fault.FileTooLarge) {
			return err
		}
		return nil // the rest of the page is worth more than its error
	}
	d.in.spent += len(content)
	inner := &drawing{in: d.in, sheet: d.sheet, res: d.res, deep: d.deep + 1, state: d.state, hidden: d.hidden}
	if r := d.in.f.dict(sd.Dict["Resources"]); r != nil {
		inner.res = r
	}
	inner.state.ctm = m.mul(d.state.ctm)
	return inner.interpret(content)
}

// formContent unpacks a form; forms on many pages are unpacked once.
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
		return nil, errLong
	}
	if in.formBytes+len(b) <= maxFormCache {
		in.formBytes += len(b)
		in.forms[id] = b
	}
	return b, nil
}

// Gaps within a baseline, in units of the font size: from the first on, a space;
// from the second on, another piece of the line.
const (
	gapSpace = 0.15
	gapPiece = 0.85
)

// show adds runs for the strings of a text operator; numbers between them move
// the pen.
func (d *drawing) show(items []operand) {
	f := d.state.font
	if f == nil || d.in.text > MaxText {
		return
	}
	m := d.tm.mul(d.state.ctm)
	x, y := m.apply(0, d.state.rise)
	ex, ey, height := m[0], m[1], math.Hypot(m[2], m[3])
	if f.vertical {
		ex, ey, height = -m[2], -m[3], math.Hypot(m[0], m[1])
	}
	unit := math.Hypot(ex, ey)
	turn := int(math.Round(math.Atan2(ey, ex)/(math.Pi/2))+4) % 4
	w := writer{d: d, unit: unit}
	w.u, w.run.v = along(turn, x, y)
	w.run.size, w.run.turn, w.run.look = math.Abs(height*d.state.size)*f.scale, turn, f.look
	if d.state.stroked {
		w.run.look |= bold
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

// along brings every writing direction onto the first, by quarter turns.
func along(turn int, x, y float64) (u, v float64) {
	switch turn {
	case 1:
		return y, -x
	case 2:
		return -x, -y
	case 3:
		return -y, x
	}
	return x, y
}
