// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"encoding/json"
	"net/http"
	"testing"
)

// Every action that stores a result as a file gives it the requested name and
// returns that name, even where the same bytes are stored under another name
// already.
func TestResultsHaveTheNamesAskedFor(t *testing.T) {
	for name, in := range map[string]map[string]any{
		"csv-to-json":      {"text": "a,b\n1,2\n"},
		"json-to-csv":      {"rows": []any{map[string]any{"a": int64(1)}}},
		"json-path":        {"value": map[string]any{"a": int64(1)}, "path": "a"},
		"text-split":       {"text": "one\ntwo\n", "by": "lines"},
		"text-join":        {"items": []any{"one", "two"}},
		"text-replace":     {"text": "one", "rules": []any{map[string]any{"find": "o", "replace": "0"}}},
		"html-to-markdown": {"text": "<p>one</p>"},
		"markdown-to-html": {"text": "# one"},
	} {
		t.Run(name, func(t *testing.T) {
			s := store(t)
			for _, want := range []string{"first.dat", "second one.dat"} {
				in["output"], in["name"] = "file", want
				out, err := call(t, s, name, in)
				if err != nil {
					t.Fatal(err)
				}
				if out["name"] != want {
					t.Errorf("the output says %v, want %s", out["name"], want)
				}
			}
			delete(in, "name")
			if out, err := call(t, s, name, in); err != nil || out["name"] == "" || out["name"] == nil {
				t.Errorf("without a name: %v, %v", out, err)
			}
		})
	}
}

// Every action that produces a file has an input for its name.
func TestWhateverMakesAFileTakesAName(t *testing.T) {
	for _, a := range Actions(Config{}) {
		var in, out struct {
			Properties map[string]struct{ Format string }
		}
		if json.Unmarshal(a.Input, &in) != nil || len(a.Output) > 0 && json.Unmarshal(a.Output, &out) != nil {
			t.Fatalf("%s: its schemas cannot be read", a.Name)
		}
		makes := false
		for _, p := range out.Properties {
			makes = makes || p.Format == "file"
		}
		if a.Name == "hash" || a.Name == "file-inspect" {
			makes = false // they return the hash of their input, not a new file
		}
		if _, takes := in.Properties["name"]; takes != makes {
			t.Errorf("%s makes a file: %t, takes a name: %t", a.Name, makes, takes)
		}
	}
}

// A response that is stored as a file has the requested name, else that of
// saveAs or the URL. A response that is a value is not stored because of a
// name.
func TestHTTPNamesItsFile(t *testing.T) {
	o := server(t, func(w http.ResponseWriter, r *http.Request) {
		body := "\x00\x01\x02\xff"
		if r.URL.Path == "/text" {
			body = "text"
		}
		_, _ = w.Write([]byte(body))
	})
	for _, tt := range []struct {
		path string
		in   map[string]any
		want any
	}{
		{"/logo.bin", nil, "logo.bin"},
		{"/logo.bin", map[string]any{"name": "ours.bin"}, "ours.bin"},
		{"/text", map[string]any{"name": "ours.txt"}, nil},
		{"/text", map[string]any{"saveAs": "saved.txt"}, "saved.txt"},
		{"/text", map[string]any{"saveAs": "saved.txt", "name": "ours.txt"}, "ours.txt"},
	} {
		if out, err := o.call(t, tt.path, tt.in); err != nil || out["name"] != tt.want {
			t.Errorf("%s with %v: %v, %v; want %v", tt.path, tt.in, out["name"], err, tt.want)
		}
	}
}
