// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/ledger"
)

// Start is everything that a run starts with. It is the payload of run.started.
type Start struct {
	Run         string            `json:"run"`
	Account     string            `json:"account"`
	Recipe      string            `json:"recipe"`
	Version     string            `json:"version,omitempty"`
	PlanHash    string            `json:"plan"`
	Parameters  map[string]any    `json:"parameters,omitempty"`
	Files       []File            `json:"files,omitempty"`
	Correlation string            `json:"correlationId,omitempty"`
	Seed        uint64            `json:"seed"`
	Pins        []Pin             `json:"pins,omitempty"` // one per plan.Actions
	Labels      map[string]string `json:"labels,omitempty"`
	// Credits is set for a run that an account pays for; nil = it costs nothing.
	Credits *Credits `json:"credits,omitempty"`
	// Child is set for a child run.
	Child *Child `json:"child,omitempty"`
	// Tree is set for a root run whose steps run recipes.
	Tree *Tree `json:"tree,omitempty"`
	// Inherited is what a child run has of the context of its parent: an object of its input, workflow, steps and names; nil = nothing.
	Inherited json.RawMessage `json:"inherited,omitempty"`
	// NoCache is set for a run, with its child runs, that uses no earlier results.
	NoCache bool `json:"noCache,omitempty"`
	// Stripped is what the input policy of the recipe has removed from the input.
	Stripped *Stripped `json:"stripped,omitempty"`
}

// Stripped says from which texts of an input something was removed before the run began.
type Stripped struct {
	Count  int      `json:"count"`
	Fields []string `json:"fields"` // JSON pointers into the input, the first ones
}

// Credits are the terms on which a run spends credits of its account, fixed at its
// start.
type Credits struct {
	Estimated int64 `json:"estimated"` // what the run was expected to cost
	Reserved  int64 `json:"reserved"`  // what was held for it when it started
	// Most is the most that all generations of the run may pay together.
	Most   int64         `json:"maxCredits"`
	Policy ledger.Policy `json:"policy"` // of a failed run
	// Key is the name of the key that the run was started with; "" = none. What the run
	// spends counts in the budget of that key.
	Key string `json:"key,omitempty"`
}

// A File is an input file of a run.
type File struct {
	Hash     string `json:"hash"`
	Name     string `json:"name,omitempty"`
	MimeType string `json:"mimeType,omitempty"`
	Size     int64  `json:"sizeBytes"`
	// Extended is the result of file inspection at upload, a JSON object (pageCount,
	// width, …); nil = none. Journals older than the field have none.
	Extended json.RawMessage `json:"extended,omitempty"`
}

// A Pin is the action that a reference resolved to when the run started.
type Pin struct {
	Name     string `json:"name"`
	Version  string `json:"version"`
	Cost     int64  `json:"cost,omitempty"`
	Provider string `json:"provider,omitempty"`
	Once     bool   `json:"atMostOnce,omitempty"`
	// Price is what a completed call costs, and the most that it costs, if that is not
	// whole credits.
	Price ledger.Amount `json:"price,omitempty"`
}

// Most is the most that a completed call costs.
func (p *Pin) Most() ledger.Amount {
	if p.Price > 0 {
		return p.Price
	}
	return ledger.Whole(p.Cost)
}

// startRecord keeps parameters exact; encoding/json would convert numbers to float64.
type startRecord struct {
	Start
	Parameters json.RawMessage `json:"parameters,omitempty"`
}

// EncodeStart encodes a start as the payload of run.started, with exact parameters.
// Parameters that are not JSON, or that use the reserved name of references, are
// fault.InputInvalid. Those of a child run may have references that its parent has.
func EncodeStart(st *Start) ([]byte, error) {
	rec := startRecord{Start: *st}
	if len(st.Parameters) > 0 {
		raw, err := jsonx.Canonical(st.Parameters)
		if err != nil {
			return nil, fault.Wrap(fault.InputInvalid, err, "the input is not JSON: %v", err)
		}
		if jsonx.Reserved(raw) && (st.Child == nil || jsonx.HasReserved(st.Parameters)) {
			return nil, ErrReserved("the input")
		}
		rec.Parameters = raw
	}
	if data, ok := appendPlainStart(nil, &rec); ok {
		return data, nil
	}
	return json.Marshal(&rec)
}

// DecodeStart reads what [EncodeStart] wrote in any release; any other input is
// fault.StoreCorrupt. The result shares no memory with data.
func DecodeStart(data []byte) (*Start, error) {
	rec, ok := readPlainStart(data)
	if !ok {
		rec = new(startRecord)
		if err := json.Unmarshal(data, rec); err != nil {
			return nil, fault.Wrap(fault.StoreCorrupt, err, "run.started cannot be read: %v", err)
		}
	}
	st := &rec.Start
	if len(rec.Parameters) > 0 {
		limits := InlineLimits
		limits.Large = st.Child != nil
		v, err := jsonx.Decode(rec.Parameters, limits)
		if err != nil {
			return nil, fault.Wrap(fault.StoreCorrupt, err, "run.started: parameters: %v", err)
		}
		m, ok := v.(map[string]any)
		if !ok {
			return nil, fault.New(fault.StoreCorrupt, "run.started: parameters are %T, want an object", v)
		}
		st.Parameters = m
		rec.Parameters = nil // it shares the journal's memory
	}
	return st, nil
}

// Most starts have the plain form: no files, no labels, no tree, and no text with escapes. The
// functions below write and read that form without encoding/json, which takes as long
// as three steps of a run. The bytes are those of encoding/json. All other starts use
// encoding/json.

// plainStart is how many bytes most starts take beside their parameters.
const plainStart = 768

// appendPlainStart encodes a start; ok is false when it does not have the plain form.
func appendPlainStart(b []byte, rec *startRecord) (_ []byte, ok bool) {
	st := &rec.Start
	if len(st.Files) > 0 || len(st.Labels) > 0 || st.Tree != nil || st.NoCache || len(st.Inherited) > 0 || st.Stripped != nil {
		return nil, false
	}
	w := startWriter{b: slices.Grow(b, plainStart+len(rec.Parameters)), ok: plainBytes(rec.Parameters)}
	w.text(`{"run":`, st.Run)
	w.text(`,"account":`, st.Account)
	w.text(`,"recipe":`, st.Recipe)
	w.optional(`,"version":`, st.Version)
	w.text(`,"plan":`, st.PlanHash)
	w.optional(`,"correlationId":`, st.Correlation)
	w.b = append(w.b, `,"seed":`...)
	w.b = strconv.AppendUint(w.b, st.Seed, 10)
	for i := range st.Pins {
		open := `,{"name":`
		if i == 0 {
			open = `,"pins":[{"name":`
		}
		pin := &st.Pins[i]
		w.text(open, pin.Name)
		w.text(`,"version":`, pin.Version)
		if pin.Cost != 0 {
			w.b = append(w.b, `,"cost":`...)
			w.b = strconv.AppendInt(w.b, pin.Cost, 10)
		}
		w.optional(`,"provider":`, pin.Provider)
		if pin.Once {
			w.b = append(w.b, `,"atMostOnce":true`...)
		}
		if pin.Price != 0 {
			w.b = append(append(w.b, `,"price":`...), pin.Price.String()...)
		}
		w.b = append(w.b, '}')
	}
	if len(st.Pins) > 0 {
		w.b = append(w.b, ']')
	}
	if c := st.Credits; c != nil {
		w.b = strconv.AppendInt(append(w.b, `,"credits":{"estimated":`...), c.Estimated, 10)
		w.b = strconv.AppendInt(append(w.b, `,"reserved":`...), c.Reserved, 10)
		w.b = strconv.AppendInt(append(w.b, `,"maxCredits":`...), c.Most, 10)
		w.text(`,"policy":`, string(c.Policy))
		w.optional(`,"key":`, c.Key)
		w.b = append(w.b, '}')
		w.ok = w.ok && min(c.Estimated, c.Reserved, c.Most) >= 0
	}
	if st.Child != nil {
		w.child(st.Child)
	}
	if len(rec.Parameters) > 0 {
		w.b = append(w.b, `,"parameters":`...)
		w.b = append(w.b, rec.Parameters...)
	}
	return append(w.b, '}'), w.ok
}

type startWriter struct {
	b  []byte
	ok bool
}

func (w *startWriter) text(name, value string) {
	w.ok = w.ok && plainText(value)
	w.b = append(w.b, name...)
	w.b = append(w.b, '"')
	w.b = append(w.b, value...)
	w.b = append(w.b, '"')
}

func (w *startWriter) optional(name, value string) {
	if value != "" {
		w.text(name, value)
	}
}

// plainText reports whether encoding/json writes s unchanged, between quotes.
func plainText(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ' || c > '~', c == '"', c == '\\', c == '<', c == '>', c == '&':
			return false
		}
	}
	return true
}

// plainBytes reports whether encoding/json writes this JSON unchanged.
func plainBytes(b []byte) bool {
	for _, c := range b {
		switch {
		case c < ' ' || c > '~', c == '<', c == '>', c == '&':
			return false
		}
	}
	return true
}

// readPlainStart reads what appendPlainStart wrote; ok is false for any other input.
func readPlainStart(data []byte) (_ *startRecord, ok bool) {
	// The texts are substrings of head. It excludes the parameters, which may be
	// large.
	head, params, given := bytes.Cut(data, []byte(`,"parameters":`))
	r := startReader{rest: string(head), ok: true}
	rec := new(startRecord)
	st := &rec.Start
	st.Run = r.text(`{"run":"`)
	st.Account = r.text(`,"account":"`)
	st.Recipe = r.text(`,"recipe":"`)
	st.Version = r.optional(`,"version":"`)
	st.PlanHash = r.text(`,"plan":"`)
	st.Correlation = r.optional(`,"correlationId":"`)
	if !r.accept(`,"seed":`) {
		return nil, false
	}
	st.Seed = r.number()
	if r.accept(`,"pins":[{"name":"`) {
		st.Pins = make([]Pin, 0, 1+strings.Count(r.rest, `,{"name":"`))
		for more := true; more; more = r.accept(`,{"name":"`) {
			pin := Pin{Name: r.text(""), Version: r.text(`,"version":"`)}
			if r.accept(`,"cost":`) {
				minus := r.accept("-")
				if pin.Cost = int64(r.number()); pin.Cost < 0 {
					return nil, false
				}
				if minus {
					pin.Cost = -pin.Cost
				}
			}
			pin.Provider = r.optional(`,"provider":"`)
			pin.Once = r.accept(`,"atMostOnce":true`)
			if r.accept(`,"price":`) {
				pin.Price = r.amount()
			}
			r.ok = r.accept("}") && r.ok
			st.Pins = append(st.Pins, pin)
		}
		r.ok = r.accept("]") && r.ok
	}
	if r.accept(`,"credits":{"estimated":`) {
		st.Credits = r.credits()
	}
	if r.accept(`,"child":{"root":"`) {
		st.Child = r.child()
	}
	if !given {
		return rec, r.ok && r.rest == "}"
	}
	n := len(params) - 1
	if n < len(`{}`) || params[0] != '{' || params[n] != '}' || !plainBytes(params) {
		return nil, false
	}
	rec.Parameters = params[:n]
	return rec, r.ok && r.rest == ""
}

// startReader reads texts as substrings of one string.
type startReader struct {
	rest string
	ok   bool
}

func (r *startReader) accept(prefix string) bool {
	rest, ok := strings.CutPrefix(r.rest, prefix)
	r.rest = rest
	return ok
}

// credits reads what follows the name of the first field.
func (r *startReader) credits() *Credits {
	c := &Credits{Estimated: r.whole("")}
	c.Reserved = r.whole(`,"reserved":`)
	c.Most = r.whole(`,"maxCredits":`)
	c.Policy = ledger.Policy(r.text(`,"policy":"`))
	c.Key = r.optional(`,"key":"`)
	r.ok = r.accept("}") && r.ok
	return c
}

// whole reads a number that fits an int64.
func (r *startReader) whole(prefix string) int64 {
	ok := r.accept(prefix)
	n := r.number()
	r.ok = r.ok && ok && n <= math.MaxInt64
	return int64(n)
}

// amount reads an amount of credits, which is not negative here.
func (r *startReader) amount() ledger.Amount {
	n := strings.IndexByte(r.rest, '}')
	a, err := ledger.ParseAmount(r.rest[:max(n, 0)])
	if n < 0 || err != nil {
		r.ok = false
		return 0
	}
	r.rest = r.rest[n:]
	return a
}

// text reads what follows prefix up to the closing quote.
func (r *startReader) text(prefix string) string {
	ok := r.accept(prefix)
	n := strings.IndexByte(r.rest, '"')
	if !ok || n < 0 || !plainText(r.rest[:n]) {
		r.ok = false
		return ""
	}
	s := r.rest[:n]
	r.rest = r.rest[n+1:]
	return s
}

func (r *startReader) optional(prefix string) string {
	if !strings.HasPrefix(r.rest, prefix) {
		return ""
	}
	return r.text(prefix)
}

func (r *startReader) number() uint64 {
	n := 0
	for n < len(r.rest) && '0' <= r.rest[n] && r.rest[n] <= '9' {
		n++
	}
	v, err := strconv.ParseUint(r.rest[:n], 10, 64)
	r.ok = r.ok && err == nil && (n == 1 || r.rest[0] != '0')
	r.rest = r.rest[n:]
	return v
}

// ErrReserved returns the error for a value from outside that uses the reserved name of
// references. Such a value would be read as a reference that a step of this run made.
func ErrReserved(what string) error {
	return fault.New(fault.InputInvalid, "%s uses the name %q, which is reserved: give the field another name", what, jsonx.LargeName)
}
