// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

var timeType = reflect.TypeFor[time.Time]()

// A parameter is a field of an input that is read from the path, the query or a header.
type parameter struct {
	index    []int
	in, name string
	required bool
	fallback string // the value of one that is absent
	layout   string // of a time
	schema   *huma.Schema
}

// findParameters finds the parameters of a type and of those that it embeds.
func (op *operation) findParameters(registry huma.Registry, t reflect.Type, index []int) error {
	if t.Kind() != reflect.Struct {
		return fmt.Errorf("%s is no struct", t)
	}
	for i := range t.NumField() {
		f := t.Field(i)
		at := append(slices.Clip(index), i)
		if !f.IsExported() || f.Name == "Body" {
			continue
		}
		if f.Anonymous {
			if err := op.findParameters(registry, f.Type, at); err != nil {
				return err
			}
			continue
		}
		p, found := parameterOf(f)
		if !found {
			continue
		}
		if !readable(f.Type) {
			return fmt.Errorf("a parameter cannot be of the type %s", f.Type)
		}
		p.index, p.schema = at, huma.SchemaFromField(registry, f, "")
		op.parameters = append(op.parameters, p)
		op.describe(&p)
	}
	return nil
}

func parameterOf(f reflect.StructField) (p parameter, found bool) {
	p = parameter{fallback: f.Tag.Get("default"), required: f.Tag.Get("required") == "true", layout: time.RFC3339Nano}
	for _, p.in = range []string{"path", "query", "header"} {
		if p.name = f.Tag.Get(p.in); p.name == "" {
			continue
		}
		switch p.in {
		case "path":
			p.required = true
		case "header":
			p.layout = http.TimeFormat
		}
		return p, true
	}
	return p, false
}

// readable reports whether a parameter may be of a type.
func readable(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int64, reflect.Uint64:
		return true
	}
	return t == timeType
}

// describe adds a parameter to the document.
func (op *operation) describe(p *parameter) {
	for _, other := range op.op.Parameters {
		if other.Name == p.name && other.In == p.in {
			return
		}
	}
	d := &huma.Param{Name: p.name, In: p.in, Description: p.schema.Description, Required: p.required, Schema: p.schema}
	if p.in == "query" {
		d.Explode = new(bool) // values are not repeated
	}
	op.op.Parameters = append(op.op.Parameters, d)
}

// read fills a field from the request.
func (p *parameter) read(h huma.Context, f reflect.Value, registry huma.Registry, r *reading) {
	r.path.Reset()
	r.path.Push(p.in)
	r.path.Push(p.name)
	text := p.text(h)
	if text == "" {
		if p.required {
			r.res.Add(r.path, "", "required "+p.in+" parameter is missing")
		}
		return
	}
	v, err := parse(f, text, p.layout)
	if err != nil {
		r.res.Add(r.path, text, err.Error())
		return
	}
	huma.Validate(registry, p.schema, r.path, huma.ModeWriteToServer, v, &r.res)
}

func (p *parameter) text(h huma.Context) (text string) {
	switch p.in {
	case "path":
		text = h.Param(p.name)
	case "query":
		text = h.Query(p.name)
	case "header":
		text = h.Header(p.name)
	}
	if text == "" {
		return p.fallback
	}
	return text
}

// parse sets a field to the value of a text and returns what the schema describes.
func parse(f reflect.Value, text, layout string) (any, error) {
	switch f.Kind() {
	case reflect.String:
		f.SetString(text)
		return text, nil
	case reflect.Int, reflect.Int64:
		v, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, errors.New("invalid integer")
		}
		f.SetInt(v)
		return v, nil
	case reflect.Uint64:
		v, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return nil, errors.New("invalid integer")
		}
		f.SetUint(v)
		return v, nil
	case reflect.Bool:
		v, err := strconv.ParseBool(text)
		if err != nil {
			return nil, errors.New("invalid boolean")
		}
		f.SetBool(v)
		return v, nil
	}
	v, err := time.Parse(layout, text)
	if err != nil {
		return nil, errors.New("invalid date/time for format " + layout)
	}
	f.Set(reflect.ValueOf(v))
	return text, nil
}

// A fieldDefault is the text of a field of the body that is absent.
type fieldDefault struct {
	index []int
	text  string
}

// findDefaults finds the fields of a body that have defaults, in objects within it, too.
// Those of parameters are set when they are read.
func findDefaults(t reflect.Type, index []int, seen map[reflect.Type]bool) (list []fieldDefault, err error) {
	switch t.Kind() {
	case reflect.Pointer:
		t = t.Elem()
	case reflect.Slice, reflect.Map:
		list, err := findDefaults(t.Elem(), nil, seen)
		if len(list) > 0 {
			err = fmt.Errorf("the elements of a %s have defaults, which only fields of the body may have", t)
		}
		return nil, err
	}
	if t.Kind() != reflect.Struct || seen[t] {
		return nil, nil
	}
	seen[t] = true
	defer delete(seen, t)
	for i := range t.NumField() {
		f := t.Field(i)
		if _, found := parameterOf(f); found || !f.IsExported() {
			continue
		}
		at := append(slices.Clip(index), i)
		if text := f.Tag.Get("default"); text != "" {
			if f.Type.Kind() != reflect.String {
				return nil, fmt.Errorf("the field %s of the body has a default, which only texts may have", f.Name)
			}
			list = append(list, fieldDefault{at, text})
		}
		more, err := findDefaults(f.Type, at, seen)
		if err != nil {
			return nil, err
		}
		list = append(list, more...)
	}
	return list, nil
}

// set sets the field of v at an index, if it is empty and the object that it belongs to is
// there.
func (d *fieldDefault) set(v reflect.Value, index []int) {
	for _, i := range index {
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				return
			}
			v = v.Elem()
		}
		v = v.Field(i)
	}
	if v.IsZero() {
		v.SetString(d.text)
	}
}
