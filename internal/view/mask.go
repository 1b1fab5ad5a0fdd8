// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
)

// Masked replaces a value that is not shown.
const Masked = "[masked]"

const (
	// shortText is the length below which a text is masked only where it is the whole
	// value, and a number not at all. Otherwise parts of other words, and other
	// numbers, would be masked by mistake.
	shortText = 4
	// maxSchemaDepth bounds how many nested schema parts are followed for one value,
	// and maxSchemaWork how many for all values of an event. Values beyond a bound are
	// masked.
	maxSchemaDepth = 32
	maxSchemaWork  = 200_000
	// maxWholes bounds how many objects and lists are recognised as a whole where they
	// are passed on. In objects and lists beyond that number, texts and long numbers are
	// still masked.
	maxWholes = 64
)

// A Mask hides the values that the recipe's input schema marks as writeOnly or
// x-sensitive, in events that are shown or exported, and those that a schema of an output
// marks. Where the value first occurs it hides the whole of it, of any type. Where a step
// passes the value on, it hides every text, long number, object and list of it. The run
// itself is computed from the unmasked events. A Mask must see the events of a run in
// order, from the first.
type Mask struct {
	schema map[string]any // of the input; nil if it marks nothing
	result map[string]any // of the run's outputs; nil if it marks nothing
	// outputs are the marks in the outputs of steps, by step.
	outputs map[int32][]outputMark
	root    map[string]any // the schema that is being followed

	texts  []string // longest first, so that none hides a part of another; numbers too, in their text form
	wholes []any    // the objects and lists that are not empty
	work   int      // schema parts followed for this event
	// unread is true once an input could not be read: any value of a later event may be
	// one that it marks.
	unread bool

	below    func(run string) (*Mask, error) // see Below; nil = no run below marks anything
	children map[childKey]string             // the child runs that have not ended
}

// A childKey is the attempt of a step that a child run is.
type childKey struct {
	path    string
	step    int32
	attempt uint32
}

// NewMask returns the mask of a plan; nil when the plan marks nothing.
func NewMask(p *plan.Plan) *Mask {
	m := &Mask{schema: marking(p.InputSchema), result: marking(p.OutputSchema)}
	m.markOutputs(p)
	if m.schema == nil && m.result == nil && m.outputs == nil {
		return nil
	}
	return m
}

// PanicText returns the text of a panic as commands, errors and logs may show it. If
// the recipe marks inputs as writeOnly, only texts of Go's runtime are shown, because
// any other text may contain their values.
func PanicText(p *plan.Plan, v any) string {
	if _, ok := v.(runtime.Error); !ok && NewMask(p) != nil {
		return Masked
	}
	return fmt.Sprint(v)
}

// MarksInput reports whether the mask hides parts of the run's input because of its own
// recipe.
func (m *Mask) MarksInput() bool { return m != nil && m.schema != nil }

// Inherit returns a mask that also hides what an outer run's mask has learned. The input
// of a child run is made by its parent, so that a value which the parent's recipe marks
// stays hidden in the child, whatever the child's recipe marks. Both masks may be nil.
func (m *Mask) Inherit(up *Mask) *Mask {
	if up == nil {
		return m
	}
	if m == nil {
		m = &Mask{}
	}
	m.texts = append(m.texts, up.texts...)
	m.sortTexts()
	m.wholes = append(m.wholes, up.wholes...)
	m.unread = m.unread || up.unread
	return m
}

// Below returns a mask that also hides what the recipes of child runs mark, from the end
// of each child run on: its parent is told its outputs and its error. of returns the mask
// of a child run that has learned its input, or nil if it marks nothing. The mask may be
// nil.
func (m *Mask) Below(of func(run string) (*Mask, error)) *Mask {
	if m == nil {
		m = &Mask{}
	}
	m.below, m.children = of, map[childKey]string{}
	return m
}

// Late reports whether what a mask hides depends on events after the first: on outputs, or
// on child runs.
func (m *Mask) Late() bool {
	return m != nil && (m.below != nil || m.outputs != nil || m.result != nil)
}

// child follows the start and the end of a child run.
func (m *Mask) child(ev *journal.Event) {
	if m.below == nil || ev.Kind != journal.EvChildStarted && ev.Kind != journal.EvChildEnded {
		return
	}
	key := childKey{string(ev.Path), ev.Step, ev.Attempt}
	if ev.Kind == journal.EvChildStarted {
		m.children[key] = ev.Text
		return
	}
	run, known := m.children[key]
	delete(m.children, key)
	if !known {
		return
	}
	ended, err := m.below(run)
	if err != nil {
		m.unread = true // what the child run returns may be anything
		return
	}
	m.Inherit(ended)
}

// sortTexts puts the longest text first, and each once.
func (m *Mask) sortTexts() {
	slices.SortFunc(m.texts, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	m.texts = slices.Compact(m.texts)
}

// Learn remembers the marked values of an event that has input or outputs of the run, or
// tells of a child run, for the masks that inherit them.
func (m *Mask) Learn(ev *journal.Event) {
	switch ev.Kind {
	case journal.EvRunStarted, journal.EvRunRetried:
		m.Event(ev)
	case journal.EvNodeCompleted, journal.EvRunCompleted, journal.EvChildStarted, journal.EvChildEnded:
		if m.marksOf(ev) != nil {
			m.Event(ev)
		} else {
			m.child(ev)
		}
	}
}

// Event returns an event as it may be shown. It never changes ev.
func (m *Mask) Event(ev *journal.Event) *journal.Event {
	if m == nil {
		return ev
	}
	out := *ev
	switch ev.Kind {
	case journal.EvRunStarted:
		st, err := journal.DecodeStart(ev.Data)
		if err != nil || m.unread { // of an outer run, too
			m.unread, out.Data = true, nil
			return &out
		}
		st.Parameters = m.Fields(st.Parameters)
		st.Inherited = m.rewrite(st.Inherited, m.inherited)
		if out.Data, err = journal.EncodeStart(st); err != nil {
			out.Data = nil
		}
		return &out
	case journal.EvRunRetried:
		out.Data = m.rewrite(ev.Data, func(v any) any {
			if fields, ok := v.(map[string]any); ok {
				return m.Fields(fields)
			}
			return Masked
		})
		m.unread = m.unread || string(out.Data) == maskedJSON
		return &out
	}
	m.child(ev)
	if ev.Kind == journal.EvRunLimits || ev.Kind == journal.EvChildStarted || ev.Kind == journal.EvRunResumed || ev.Kind == journal.EvRunPinned || ev.Kind == journal.EvNodeCached {
		return ev // limits and shares are numbers that readers of the state need, and a run id, the name of a recipe, a path or a hash is no secret
	}
	if m.unread {
		return hidden(&out)
	}
	if marks := m.marksOf(ev); marks != nil {
		return m.output(&out, marks)
	}
	if len(m.texts) == 0 && len(m.wholes) == 0 {
		return ev
	}
	change := m.value
	switch ev.Kind {
	case journal.EvNodeOpened, journal.EvNodeItems, journal.EvRunCompleted:
		change = m.inside // a list of items, or outputs by name, stays a list or an object
	}
	switch ev.Kind {
	case journal.EvRunSignalled, journal.EvNodeOpened, journal.EvContract, journal.EvRunContract, journal.EvNodeBlocked, journal.EvRunCompleted,
		journal.EvModerationPassed, journal.EvModerationFlagged:
		// Text is a name from the recipe, from Roux, or of a file.
	default:
		out.Text = m.text(ev.Text)
	}
	out.Data = m.rewrite(ev.Data, change)
	return &out
}

// inherited masks what a run has of the context of its parent: fields of its input as its own ones.
func (m *Mask) inherited(v any) any {
	all, ok := v.(map[string]any)
	if !ok {
		return Masked
	}
	for of, fields := range all {
		if input, ok := fields.(map[string]any); ok && of == "input" {
			all[of] = m.Fields(input)
		} else {
			all[of] = m.inside(fields)
		}
	}
	return all
}

// rewrite applies change to a JSON value. A value that cannot be decoded is masked.
func (m *Mask) rewrite(data []byte, change func(any) any) []byte {
	if len(data) == 0 {
		return data
	}
	v, err := jsonx.Decode(data, jsonx.Limits{Bytes: len(data) + 1, Depth: journal.InlineLimits.Depth})
	if err == nil {
		data, err = jsonx.Canonical(change(v))
	}
	if err != nil {
		return []byte(maskedJSON)
	}
	return data
}

// maskedJSON is Masked as a JSON value.
const maskedJSON = `"` + Masked + `"`

// hidden masks the values and the texts of an event whole.
func hidden(ev *journal.Event) *journal.Event {
	if len(ev.Data) > 0 {
		ev.Data = []byte(maskedJSON)
	}
	if ev.Text != "" {
		ev.Text = Masked
	}
	return ev
}

// Fields masks parameters of the run, and remembers the marked values in them.
func (m *Mask) Fields(params map[string]any) map[string]any {
	m.work, m.root = 0, m.schema
	masked, _ := m.marked(m.schema, params, 0).(map[string]any)
	m.sortTexts()
	// The same text may occur in other parameters.
	masked, _ = m.value(masked).(map[string]any)
	return masked
}

// marked masks the parts of v that a schema marks. depth is how many nested schema
// parts have been followed for this value.
func (m *Mask) marked(schema any, v any, depth int) any {
	s, ok := schema.(map[string]any)
	if !ok {
		return v
	}
	m.work++
	if s["writeOnly"] == true || s["x-sensitive"] == true || m.work > maxSchemaWork || depth > maxSchemaDepth {
		m.learn(v)
		return Masked
	}
	for _, word := range []string{"$ref", "$dynamicRef"} {
		if ref, ok := s[word].(string); ok {
			v = m.marked(m.resolve(ref), v, depth+1)
		}
	}
	for _, word := range []string{"allOf", "anyOf", "oneOf"} {
		if all, ok := s[word].([]any); ok {
			for _, sub := range all {
				v = m.marked(sub, v, depth+1)
			}
		}
	}
	for _, word := range []string{"if", "then", "else"} {
		v = m.marked(s[word], v, depth+1)
	}
	if all, ok := s["dependentSchemas"].(map[string]any); ok {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			v = m.marked(all[name], v, depth+1)
		}
	}
	switch v := v.(type) {
	case map[string]any:
		return m.markedFields(s, v)
	case []any:
		return m.markedItems(s, v)
	}
	return v
}

// markedFields masks the marked fields of an object. additionalProperties
// and unevaluatedProperties are applied to every field that properties does not name,
// even if another keyword covers it. This may hide a value that could be shown, but
// never shows one that must be hidden.
func (m *Mask) markedFields(s, v map[string]any) any {
	out := make(map[string]any, len(v))
	props, _ := s["properties"].(map[string]any)
	patterns, _ := s["patternProperties"].(map[string]any)
	for name, field := range v {
		for _, pattern := range slices.Sorted(maps.Keys(patterns)) {
			if re, err := regexp.Compile(pattern); err != nil || re.MatchString(name) {
				field = m.marked(patterns[pattern], field, 0)
			}
		}
		if sub, ok := props[name]; ok {
			field = m.marked(sub, field, 0)
		} else {
			field = m.marked(s["additionalProperties"], field, 0)
			field = m.marked(s["unevaluatedProperties"], field, 0)
		}
		out[name] = field
	}
	return out
}

// markedItems masks the marked items of a list.
func (m *Mask) markedItems(s map[string]any, v []any) any {
	out := make([]any, len(v))
	first, _ := s["prefixItems"].([]any)
	rest := s["items"]
	if places, ok := rest.([]any); ok { // the form of drafts before 2020-12
		first, rest = places, s["additionalItems"]
	}
	for i, item := range v {
		if i < len(first) {
			item = m.marked(first[i], item, 0)
		} else {
			item = m.marked(rest, item, 0)
			item = m.marked(s["unevaluatedItems"], item, 0)
		}
		out[i] = m.marked(s["contains"], item, 0)
	}
	return out
}

// resolve follows a reference within the schema, by path or by name.
func (m *Mask) resolve(ref string) any {
	path, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil
	}
	if path != "" && path[0] != '/' {
		return anchored(m.root, path, 0)
	}
	var at any = m.root
	for part := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		if part == "" {
			continue
		}
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		switch under := at.(type) {
		case map[string]any:
			at = under[part]
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(under) {
				return nil
			}
			at = under[i]
		default:
			return nil
		}
	}
	return at
}

// anchored finds the part of a schema with that name.
func anchored(at any, name string, depth int) any {
	if depth > maxSchemaDepth {
		return nil
	}
	switch at := at.(type) {
	case map[string]any:
		if at["$anchor"] == name || at["$dynamicAnchor"] == name {
			return at
		}
		for _, word := range slices.Sorted(maps.Keys(at)) {
			if found := anchored(at[word], name, depth+1); found != nil {
				return found
			}
		}
	case []any:
		for _, item := range at {
			if found := anchored(item, name, depth+1); found != nil {
				return found
			}
		}
	}
	return nil
}

// learn remembers the texts, numbers, objects and lists of a marked value.
func (m *Mask) learn(v any) {
	switch v := v.(type) {
	case string:
		if v != "" && v != Masked {
			m.texts = append(m.texts, v)
			// A message may quote the text, or only a URL that the text contains.
			forms := []string{unquoted(strconv.Quote(v)), unquoted(jsonText(v))}
			if len(v) >= shortText {
				forms = append(forms, escaped(v, "$&+,/:;=@"), escaped(v, "$&+:=@"), strings.ReplaceAll(escaped(v, " "), " ", "+"))
			}
			for _, form := range forms {
				if form != v && form != "" {
					m.texts = append(m.texts, form)
				}
			}
		}
	case int64, float64:
		if text := jsonText(v); len(text) >= shortText {
			m.texts = append(m.texts, text)
		}
	case []any:
		m.learnWhole(v, len(v))
		for _, item := range v {
			m.learn(item)
		}
	case map[string]any:
		m.learnWhole(v, len(v))
		for _, name := range slices.Sorted(maps.Keys(v)) {
			m.learn(v[name])
		}
	}
}

// unquoted is s without the quotes around it.
func unquoted(s string) string { return strings.TrimSuffix(strings.TrimPrefix(s, `"`), `"`) }

// escaped is a text as it occurs in URLs. keep lists the characters that are not
// escaped; they differ between a path, a part of a path, and a query.
func escaped(s, keep string) string {
	const digits = "0123456789ABCDEF"
	out := make([]byte, 0, len(s))
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("-_.~", c) >= 0, strings.IndexByte(keep, c) >= 0:
			out = append(out, c)
		default:
			out = append(out, '%', digits[c>>4], digits[c&15])
		}
	}
	return string(out)
}

// learnWhole remembers a marked object or list.
func (m *Mask) learnWhole(v any, size int) {
	if size > 0 && len(m.wholes) < maxWholes && !m.whole(v) {
		m.wholes = append(m.wholes, v)
	}
}

// jsonText is a value as JSON; a template formats a number the same way.
func jsonText(v any) string {
	text, err := jsonx.Canonical(v)
	if err != nil {
		return ""
	}
	return string(text)
}

// value returns v with the marked values masked; v is not changed.
func (m *Mask) value(v any) any {
	switch v := v.(type) {
	case string:
		if slices.Contains(m.texts, v) {
			return Masked
		}
		return m.text(v)
	case int64, float64:
		if text := jsonText(v); len(text) >= shortText && slices.Contains(m.texts, text) {
			return Masked
		}
		return v
	case []any, map[string]any:
		if m.whole(v) {
			return Masked
		}
		return m.inside(v)
	}
	return v
}

// inside masks the contents of an object or a list, which itself stays.
func (m *Mask) inside(v any) any {
	switch v := v.(type) {
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = m.value(v[i])
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, field := range v {
			out[m.text(k)] = m.value(field)
		}
		return out
	}
	return m.value(v)
}

// whole reports whether an object or a list is a marked one.
func (m *Mask) whole(v any) bool {
	return slices.ContainsFunc(m.wholes, func(w any) bool { return reflect.DeepEqual(v, w) })
}

func (m *Mask) text(s string) string {
	for _, t := range m.texts {
		if len(t) >= shortText {
			s = cutShort(strings.ReplaceAll(s, t, Masked), t)
		}
	}
	return s
}

// cutShort masks the end of a message that was cut off inside a marked text, of which it
// therefore contains only the beginning.
func cutShort(s, t string) string {
	const ellipsis = "…"
	for at := 0; ; {
		i := strings.Index(s[at:], ellipsis)
		if i < 0 {
			return s
		}
		end := at + i
		begin := end
		// The longest prefix of t that ends here.
		for n := min(len(t), end); n >= shortText; n-- {
			if s[end-n:end] == t[:n] {
				begin = end - n
				break
			}
		}
		if begin < end {
			s = s[:begin] + Masked + s[end:]
			end = begin + len(Masked)
		}
		at = end + len(ellipsis)
	}
}
