// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"encoding/json"
	"errors"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonx"
)

// maxRaw is how much JSON text is read to see whether it is small enough in
// canonical form: white space and escapes may shrink it.
const maxRaw = 4 * MaxOutput

// encode writes an output once, in the form in which it is journaled.
func encode(name string, v any) ([]byte, *fault.Error) {
	data, err := canonical(v)
	switch {
	case errors.Is(err, errRawTooLarge) || len(data) > MaxOutput:
		return nil, fault.New(fault.OutputTooLarge, "action %s returned more than %d bytes: return a file instead", name, MaxOutput)
	case err != nil:
		return nil, fault.Wrap(fault.StepFailed, err, "action %s returned an output that is no JSON value: %v", name, err)
	}
	return data, nil
}

// null is the output of an action that has none; nobody writes into an output.
var null = []byte("null")

var errRawTooLarge = errors.New("JSON text is too large")

func canonical(v any) ([]byte, error) {
	var raw []byte
	switch v := v.(type) {
	case nil:
		return null, nil
	case bool, int, int64, float64, string:
		return jsonx.Canonical(v)
	case json.RawMessage:
		raw = v
	case map[string]any, []any:
		// Most outputs are made of plain values; one that holds a struct deeper
		// down takes the way of the structs.
		if data, err := jsonx.Canonical(v); err == nil {
			return data, nil
		}
		var err error
		if raw, err = json.Marshal(v); err != nil {
			return nil, err
		}
	default:
		var err error
		if raw, err = json.Marshal(v); err != nil {
			return nil, err
		}
	}
	if len(raw) > maxRaw {
		return nil, errRawTooLarge
	}
	return jsonx.CanonicalRaw(raw)
}

// check decodes a value and holds it to a validator.
func check(validate func(any) error, data []byte, code fault.Code) *fault.Error {
	v, err := jsonx.Decode(data, jsonx.Limits{Bytes: len(data) + 1})
	if err != nil {
		return fault.Wrap(code, err, "the value is no JSON: %v", err)
	}
	err = validate(v)
	if err == nil {
		return nil
	}
	var f *fault.Error
	if errors.As(err, &f) {
		return f
	}
	return fault.Wrap(code, err, "%s", err.Error())
}
