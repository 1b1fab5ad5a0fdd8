// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
)

var callbackType = reflect.TypeFor[func(huma.Context)]()

// An output is what the type of an answer consists of.
type output struct {
	status  []int // index of the field Status; nil = it has none
	body    []int // index of the field Body
	headers []outputHeader
}

// An outputHeader is a field that is sent as a header, if it is not empty.
type outputHeader struct {
	index []int
	name  string
}

// findOutput finds the parts of an output and describes them.
func findOutput(registry huma.Registry, o *huma.Operation, t reflect.Type) (out output, err error) {
	if t.Kind() != reflect.Struct {
		return out, fmt.Errorf("%s is no struct", t)
	}
	if f, ok := t.FieldByName("Status"); ok {
		out.status = f.Index
	}
	body, hasBody := t.FieldByName("Body")
	if o.DefaultStatus == 0 {
		o.DefaultStatus = http.StatusNoContent
		if hasBody {
			o.DefaultStatus = http.StatusOK
		}
	}
	status := strconv.Itoa(o.DefaultStatus)
	if o.Responses[status] == nil {
		o.Responses[status] = &huma.Response{}
	}
	r := o.Responses[status]
	if r.Description == "" {
		r.Description = http.StatusText(o.DefaultStatus)
	}
	if hasBody {
		out.body = body.Index
		if r.Headers == nil {
			r.Headers = map[string]*huma.Param{}
		}
		if body.Type != callbackType {
			schema := huma.SchemaFromField(registry, body, hint(t, body.Name, o.OperationID+"Response"))
			if r.Content == nil {
				r.Content = map[string]*huma.MediaType{"application/json": {Schema: schema}}
			}
		}
	}
	return out, out.findHeaders(registry, o, r, t, nil)
}

// findHeaders finds the headers of an output and of what it embeds.
func (out *output) findHeaders(registry huma.Registry, o *huma.Operation, r *huma.Response, t reflect.Type, index []int) error {
	for i := range t.NumField() {
		f := t.Field(i)
		at := append(slices.Clip(index), i)
		switch {
		case !f.IsExported() || f.Name == "Status" || f.Name == "Body":
		case f.Anonymous && f.Type.Kind() == reflect.Struct:
			if err := out.findHeaders(registry, o, r, f.Type, at); err != nil {
				return err
			}
		case f.Type.Kind() != reflect.String:
			return fmt.Errorf("the header %s is no text", f.Name)
		default:
			name := f.Tag.Get("header")
			if name == "" {
				name = f.Name
			}
			out.headers = append(out.headers, outputHeader{at, name})
			if r.Headers == nil {
				r.Headers = map[string]*huma.Param{}
			}
			r.Headers[name] = &huma.Header{Schema: huma.SchemaFromField(registry, f, hint(t, f.Name, o.OperationID+strconv.Itoa(o.DefaultStatus)+name))}
		}
	}
	return nil
}

// answer sends an output.
func (op *operation) answer(h huma.Context, out reflect.Value) {
	kind := ""
	for _, header := range op.output.headers {
		text := out.FieldByIndex(header.index).String()
		if header.name == "Content-Type" {
			kind = text // its own, whatever the client accepts
		}
		if text != "" {
			h.SetHeader(header.name, text)
		}
	}
	status := op.op.DefaultStatus
	if op.output.status != nil {
		status = int(out.FieldByIndex(op.output.status).Int())
	}
	if op.output.body == nil {
		h.SetStatus(status)
		return
	}
	switch body := out.FieldByIndex(op.output.body).Interface().(type) {
	case func(huma.Context):
		body(h)
	case []byte:
		h.SetStatus(status)
		_, _ = h.BodyWriter().Write(body) // an error means that the client has gone
	default:
		op.write(h, status, kind, body)
	}
}

// write sends a body in the type that the client accepts, unless it has one of its own.
func (op *operation) write(h huma.Context, status int, kind string, body any) {
	api := op.rt.api
	if kind == "" {
		var err error
		if kind, err = api.Negotiate(h.Header("Accept")); err != nil {
			_ = huma.WriteErr(api, h, http.StatusNotAcceptable, "unable to marshal response", err)
			return
		}
		if own, ok := body.(huma.ContentTypeFilter); ok {
			kind = own.ContentType(kind)
		}
		h.SetHeader("Content-Type", kind)
	}
	h.SetStatus(status)
	if status == http.StatusNoContent || status == http.StatusNotModified {
		return
	}
	if err := api.Marshal(h.BodyWriter(), kind, body); err != nil {
		if !errors.Is(h.Context().Err(), context.Canceled) {
			op.rt.cfg.Logger.WarnContext(h.Context(), "an answer could not be sent", "request", From(h.Context()).ID, "operation", op.op.OperationID, "error", err)
		}
		panic(http.ErrAbortHandler) // the client must not take what it has for all of it
	}
}
