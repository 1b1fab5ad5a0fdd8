// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"encoding/json"
	"errors"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonx"
)

// rawFactor is how many times longer raw JSON text may be than its canonical form,
// which has no white space and fewer escapes.
const rawFactor = 4

// encode encodes an output in the form in which it is journaled, with at most
// most bytes. decoded is what [check] would decode from a small one; nil = it is not known.
func encode(name string, v any, most int) (data []byte, decoded any, fail *fault.Error) {
	data, decoded, err := canonical(v, most)
	switch {
	case errors.Is(err, errRawTooLarge) || len(data) > most || tooManyTokens(err):
		return nil, nil, outputTooLarge(name, most)
	case err != nil:
		return nil, nil, fault.Wrap(fault.StepFailed, err, "action %s returned an output that is no JSON value: %v", name, err)
	case jsonx.Reserved(data):
		// The engine would read it as a reference to a file.
		return nil, nil, fault.New(fault.OutputContractViolation,
			"the output of action %s uses the name %q, which is reserved: give the field another name", name, jsonx.LargeName)
	}
	return data, decoded, nil
}

// tooManyTokens reports whether err says that a text has more names and values than
// may be decoded.
func tooManyTokens(err error) bool {
	if err == nil {
		return false
	}
	var e *jsonx.Error
	return errors.As(err, &e) && e.Tokens
}

func outputTooLarge(name string, most int) *fault.Error {
	return fault.New(fault.OutputTooLarge, "action %s returned more than %d bytes: return a file instead", name, most)
}

// null is the output of an action that returns none. It is shared, because outputs are
// never modified.
var null = []byte("null")

var errRawTooLarge = errors.New("JSON text is too large")

func canonical(v any, most int) (data []byte, decoded any, err error) {
	var raw []byte
	switch v := v.(type) {
	case nil:
		return null, nil, nil
	case bool, int, int64, float64, string:
		data, err = jsonx.Canonical(v)
		return data, nil, err
	case json.RawMessage:
		raw = v
	case map[string]any, []any:
		// Most outputs consist of plain values; one that contains a struct is
		// marshaled first, like a struct.
		if data, err := jsonx.Canonical(v); err == nil {
			return data, nil, nil
		}
		if raw, err = json.Marshal(v); err != nil {
			return nil, nil, err
		}
	default:
		if raw, err = json.Marshal(v); err != nil {
			return nil, nil, err
		}
	}
	if len(raw) > min(rawFactor*most, 2*MaxLarge) {
		return nil, nil, errRawTooLarge
	}
	if decoded, err = jsonx.Decode(raw, jsonx.Limits{Bytes: len(raw) + 1, Tokens: maxTokens}); err != nil {
		return nil, nil, err
	}
	if data, err = jsonx.AppendCanonical(make([]byte, 0, len(raw)), decoded); len(raw) > MaxOutput {
		decoded = nil // its memory is needed for what comes next (I15)
	}
	return data, decoded, err
}

// maxDepth bounds the nesting of an input or output: what an action returns has at most
// 64 levels, and a list read from a file may be nested 64 levels deep in an input.
const maxDepth = 128

// outputLimits are the limits for decoding an input or output whose size was checked.
func outputLimits(data []byte) jsonx.Limits {
	return jsonx.Limits{Bytes: len(data) + 1, Depth: maxDepth, Tokens: maxTokens}
}

// check decodes a value and validates it.
func check(validate func(any) error, data []byte, code, tooLarge fault.Code) *fault.Error {
	v, err := jsonx.Decode(data, outputLimits(data))
	if tooManyTokens(err) {
		return fault.New(tooLarge, "the value cannot be checked: %v", err)
	}
	if err != nil {
		return fault.Wrap(code, err, "the value is no JSON: %v", err)
	}
	return checkDecoded(validate, v, code)
}

// checkDecoded validates a value.
func checkDecoded(validate func(any) error, v any, code fault.Code) *fault.Error {
	err := validate(v)
	if err == nil {
		return nil
	}
	var f *fault.Error
	if errors.As(err, &f) {
		return f
	}
	return fault.Wrap(code, err, "%s", err.Error())
}
