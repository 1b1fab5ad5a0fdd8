// SPDX-License-Identifier: Apache-2.0

package pdf

import (
	"math"
	"strings"

	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu/types"
)

// Limits and flags of annotations.
const (
	maxAnnotations = 10_000
	flagHidden     = 1 << 1
	flagNoView     = 1 << 5
	flagPassword   = 1 << 13 // of a field
)

// annotations reads what lies over a page: form fields with their values,
// stamps, text notes.
func (in *interpreter) annotations(s *pageContent, n pageNode) error {
	list := in.f.array(n.dict["Annots"])
	for _, o := range list[:min(len(list), maxAnnotations)] {
		a := in.f.dict(o)
		if a == nil || int(in.f.float(a["F"]))&(flagHidden|flagNoView) != 0 || in.f.name(a["Subtype"]) == "Popup" ||
			in.layerHidden(in.f.dict(a["OC"])) {
			continue
		}
		box, ok := in.f.box(a["Rect"])
		if !ok {
			continue
		}
		field := in.f.name(a["Subtype"]) == "Widget"
		shown, before := len(s.runs), in.textBytes
		sd, ok := in.appearance(a)
		if ok {
			d := &contentState{in: in, page: s, res: n.resources}
			d.state.ctm, d.state.scale = identity, 1
			if err := d.drawForm(sd, in.fit(sd, box)); err != nil {
				return err
			}
		}
		if field && (!ok || in.needAppearances && len(s.runs) == shown && in.textBytes == before) {
			in.fieldValue(s, a, box)
		}
	}
	return nil
}

// appearance returns the appearance stream for the current state of an
// annotation.
func (in *interpreter) appearance(a types.Dict) (types.StreamDict, bool) {
	normal := in.f.dict(a["AP"])["N"]
	if sd, ok := in.f.stream(normal); ok {
		return sd, true
	}
	states, _ := in.f.get(normal).(types.Dict)
	return in.f.stream(states[in.f.name(a["AS"])])
}

// fit returns the matrix that maps the box of an appearance onto the box of its
// annotation.
func (in *interpreter) fit(sd types.StreamDict, box rect) matrix {
	m := in.f.matrix(sd.Dict["Matrix"])
	b, ok := in.f.box(sd.Dict["BBox"])
	if !ok {
		return m
	}
	from := rect{math.Inf(1), math.Inf(1), math.Inf(-1), math.Inf(-1)}
	for _, corner := range [][2]float64{{b[0], b[1]}, {b[2], b[1]}, {b[0], b[3]}, {b[2], b[3]}} {
		x, y := m.apply(corner[0], corner[1])
		from = rect{min(from[0], x), min(from[1], y), max(from[2], x), max(from[3], y)}
	}
	sx, sy := 1.0, 1.0
	if w := from[2] - from[0]; w > 0 {
		sx = (box[2] - box[0]) / w
	}
	if h := from[3] - from[1]; h > 0 {
		sy = (box[3] - box[1]) / h
	}
	return m.mul(matrix{sx, 0, 0, sy, box[0] - from[0]*sx, box[1] - from[1]*sy})
}

// fieldValue adds the value of a field that has no appearance of its own, or an
// empty one in a form whose appearances must be regenerated. PDF viewers draw
// the value when the file is opened.
func (in *interpreter) fieldValue(s *pageContent, field types.Dict, box rect) {
	var value types.Object
	kind, flags := "", 0
	for d, up := field, 0; d != nil && up < maxTreeDepth; d, up = in.f.dict(d["Parent"]), up+1 {
		if value == nil {
			value = d["V"]
		}
		if kind == "" {
			kind = in.f.name(d["FT"])
		}
		if flags == 0 {
			flags = int(in.f.float(d["Ff"]))
		}
	}
	if kind != "Tx" && kind != "Ch" || flags&flagPassword != 0 {
		return
	}
	size := min(10, max(4, (box[3]-box[1])*0.7))
	v := box[3] - size
	for line := range strings.Lines(in.f.text(value)) {
		text := strings.TrimSpace(strings.Map(printable, line))
		if text == "" || len(s.runs) >= maxRuns {
			continue
		}
		in.textBytes += len(text)
		s.runs = append(s.runs, textRun{u0: box[0] + 2, u1: box[0] + 2 + float64(len(text))*size/2, v: v, size: size, text: normalizeGlyphText(text)})
		v -= 1.2 * size
	}
}
