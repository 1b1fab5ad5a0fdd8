// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"encoding/json"
	"strconv"
	"strings"
)

func exact(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = exact(v[k])
		}
	case []any:
		for k := range v {
			v[k] = exact(v[k])
		}
	case float64:
		if v == float64(int64(v)) {
			return int64(v)
		}
	}
	return v
}

// parseArgs reads: word key=value key="quoted value" {json}.
func parseArgs(s string) map[string]string {
	args := map[string]string{}
	for s = strings.TrimSpace(s); s != ""; s = strings.TrimSpace(s) {
		key := ""
		if eq := strings.IndexAny(s, "= {"); eq > 0 && s[eq] == '=' {
			key, s = s[:eq], s[eq+1:]
		}
		var val string
		switch s[0] {
		case '{', '[', '"':
			dec := json.NewDecoder(strings.NewReader(s))
			var raw json.RawMessage
			if err := dec.Decode(&raw); err != nil {
				panic(err)
			}
			val, s = string(raw), s[dec.InputOffset():]
			if val[0] == '"' && key != "output" && key != "data" {
				json.Unmarshal([]byte(val), &val)
			}
		default:
			val, s, _ = strings.Cut(s, " ")
		}
		args[key] = val
	}
	return args
}

// number parses an argument; 0 when it is missing.
func (w *fakeEngine) number(text string) int64 {
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

func compact(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}
