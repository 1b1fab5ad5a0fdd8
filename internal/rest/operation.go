// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
)

// A call carries out an operation. in and out are pointers to structs.
type call func(ctx context.Context, in any) (out any, err error)

// An operation reads the input of a request, has it carried out, and writes the answer. The
// library describes, decodes and validates; its generic way to register an operation would
// compile the code below once for each of them, which are 2.5 MiB of a binary.
type operation struct {
	rt         *Router
	op         *huma.Operation
	call       call
	in         reflect.Type
	parameters []parameter
	body       []int // index of the field Body of the input; nil = it has none
	rawBody    []int // index of the field RawBody
	schema     *huma.Schema
	defaults   []fieldDefault
	output     output
}

// register adds an operation to the document and to the mux. What an input or an output
// cannot have is reported by Start.
func (rt *Router) register(o huma.Operation, in, out reflect.Type, fn call) {
	op := &operation{rt: rt, op: &o, call: fn, in: in}
	registry := rt.api.OpenAPI().Components.Schemas
	err := op.findParameters(registry, in, nil)
	if err == nil {
		op.findBody(registry)
		op.defaults, err = findDefaults(in, nil, map[reflect.Type]bool{})
	}
	if err == nil {
		op.output, err = findOutput(registry, &o, out)
	}
	if err != nil {
		rt.unfit = append(rt.unfit, fmt.Errorf("%s: %w", o.OperationID, err))
		return
	}
	rt.api.OpenAPI().AddOperation(&o)
	rt.api.Adapter().Handle(&o, func(h huma.Context) { rt.guard(h, op.serve) })
}

// findBody describes the body of the input.
func (op *operation) findBody(registry huma.Registry) {
	o := op.op
	body, hasBody := op.in.FieldByName("Body")
	raw, hasRaw := op.in.FieldByName("RawBody")
	if !hasBody && !hasRaw {
		return
	}
	if o.RequestBody == nil {
		o.RequestBody = &huma.RequestBody{Content: map[string]*huma.MediaType{}}
	}
	if o.MaxBodyBytes == 0 {
		o.MaxBodyBytes = maxBody
	}
	if hasRaw {
		op.rawBody = raw.Index
		o.RequestBody.Required = true
		for kind := range strings.SplitSeq(raw.Tag.Get("contentType"), ",") {
			o.RequestBody.Content[kind] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}
		}
		return
	}
	op.body = body.Index
	o.RequestBody.Required = body.Type.Kind() != reflect.Pointer
	op.schema = huma.SchemaFromField(registry, body, hint(op.in, body.Name, o.OperationID+"Request"))
	op.schema.PrecomputeMessages()
	o.RequestBody.Content["application/json"] = &huma.MediaType{Schema: op.schema}
}

// hint is the name of the schema of a type that has none.
func hint(parent reflect.Type, field, other string) string {
	if parent.Name() != "" {
		return parent.Name() + field
	}
	return other
}

// A reading is what reading one request needs.
type reading struct {
	path *huma.PathBuffer
	res  huma.ValidateResult
	body bytes.Buffer
}

var readings = sync.Pool{New: func() any { return &reading{path: huma.NewPathBuffer(make([]byte, 0, 128), 0)} }}

// maxReading bounds a buffer that is used again.
const maxReading = 1 << 20

func (r *reading) release() {
	if r.body.Cap() > maxReading || cap(r.res.Errors) > 128 {
		return
	}
	r.path.Reset()
	r.res.Reset()
	r.body.Reset()
	readings.Put(r)
}

// serve carries out a request that the router has admitted.
func (op *operation) serve(h huma.Context) {
	in := reflect.New(op.in)
	if status := op.read(h, in.Elem()); status != 0 {
		if p := op.rt.policies[op.op.OperationID]; p.Unread != nil {
			p.Unread(status)
		}
		return
	}
	out, err := op.call(h.Context(), in.Interface())
	if err != nil {
		p := op.rt.Problem(h.Context(), err)
		for name, values := range p.header {
			for _, v := range values {
				h.AppendHeader(name, v)
			}
		}
		op.write(h, p.Status, "", p)
		return
	}
	if v := reflect.ValueOf(out).Elem(); v.IsValid() {
		op.answer(h, v)
		return
	}
	h.SetStatus(op.op.DefaultStatus)
}

// read fills the input of a request. If the request was not valid it is answered, and status is that of
// the answer; otherwise it is 0.
func (op *operation) read(h huma.Context, in reflect.Value) (status int) {
	r := readings.Get().(*reading)
	defer r.release()
	registry := op.rt.api.OpenAPI().Components.Schemas
	for i := range op.parameters {
		p := &op.parameters[i]
		p.read(h, in.FieldByIndex(p.index), registry, r)
	}
	status = http.StatusUnprocessableEntity
	if op.body != nil || op.rawBody != nil {
		code, problem, err := op.readBody(h, r)
		if code != 0 {
			_ = huma.WriteErr(op.rt.api, h, code, problem, err...) // an error means that the client has gone
			return code
		}
		if code := op.decodeBody(h, in, registry, r); code != 0 {
			status = code
		}
	}
	if len(r.res.Errors) > 0 {
		_ = huma.WriteErr(op.rt.api, h, status, "validation failed", r.res.Errors...)
		return status
	}
	return 0
}

// bodyTime bounds the time in which a body that is decoded arrives.
const bodyTime = readTime / 6

// readBody reads the body. code is not 0 if it did not arrive.
func (op *operation) readBody(h huma.Context, r *reading) (code int, problem string, errs []error) {
	if op.body != nil {
		_ = h.SetReadDeadline(op.rt.cfg.Now().Add(bodyTime)) // a recorder in a test has no deadlines
	}
	var body io.Reader = bytes.NewReader(nil)
	if b := h.BodyReader(); b != nil {
		body = b
	}
	if c, ok := body.(io.Closer); ok {
		defer c.Close()
	}
	n, err := io.Copy(&r.body, io.LimitReader(body, op.op.MaxBodyBytes))
	switch timeout := net.Error(nil); {
	case n == op.op.MaxBodyBytes:
		return http.StatusRequestEntityTooLarge, "request body is too large limit=" + strconv.FormatInt(n, 10) + " bytes", nil
	case errors.As(err, &timeout) && timeout.Timeout():
		return http.StatusRequestTimeout, "request body read timeout", nil
	case err != nil:
		return http.StatusInternalServerError, "cannot read request body", []error{err}
	case n == 0 && op.op.RequestBody.Required:
		return http.StatusBadRequest, "request body is required", nil
	}
	return 0, "", nil
}

// decodeBody validates the body and puts it into the input. It returns the status of an
// answer that reports what is wrong with it, or 0.
func (op *operation) decodeBody(h huma.Context, in reflect.Value, registry huma.Registry, r *reading) (status int) {
	text := r.body.Bytes()
	if op.rawBody != nil {
		in.FieldByIndex(op.rawBody).SetBytes(bytes.Clone(text))
		return 0
	}
	if len(text) == 0 {
		return 0
	}
	kind := h.Header("Content-Type")
	if kind == "" {
		kind = "application/json"
	}
	wrong := func(err error) {
		r.res.Errors = append(r.res.Errors, &huma.ErrorDetail{Location: "body", Message: err.Error()})
	}
	var parsed any
	if err := op.rt.api.Unmarshal(kind, text, &parsed); err != nil {
		wrong(err)
		if errors.Is(err, huma.ErrUnknownContentType) {
			return http.StatusUnsupportedMediaType
		}
		return http.StatusBadRequest
	}
	before := len(r.res.Errors)
	r.path.Reset()
	r.path.Push("body")
	huma.Validate(registry, op.schema, r.path, huma.ModeWriteToServer, parsed, &r.res)
	if len(r.res.Errors) > before {
		nameKnown(registry, op.schema, r.res.Errors[before:min(len(r.res.Errors), before+maxPlaces)])
		return http.StatusUnprocessableEntity
	}
	if err := op.rt.api.Unmarshal(kind, text, in.FieldByIndex(op.body).Addr().Interface()); err != nil {
		wrong(err) // what fits the schema does not fit the type
		return 0
	}
	for i := range op.defaults {
		op.defaults[i].set(in, op.defaults[i].index)
	}
	return 0
}
