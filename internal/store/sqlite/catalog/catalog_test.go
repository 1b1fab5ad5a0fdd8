// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"strings"
	"testing"
	"testing/fstest"
)

func TestCatalog(t *testing.T) {
	load := func(data string) (*Texts, error) {
		return Load(fstest.MapFS{"sql/a.sql": {Data: []byte(data)}})
	}
	c, err := load("-- License\n\n-- name: one\n-- What it does.\nSELECT {columns}\nFROM t;\n\n-- name: columns\na, b;\n")
	if err != nil || c.Text("one") != "SELECT a, b\nFROM t" || c.Err() != nil {
		t.Fatalf("text one = %q, %v, %v", c.texts["one"], err, c.Err())
	}
	if got := c.Text("two"); got != "" || c.Err() == nil || !strings.Contains(c.Err().Error(), `"two"`) {
		t.Errorf("text two = %q, %v", got, c.Err())
	}
	for _, bad := range []struct{ what, data string }{
		{"a text without a semicolon", "-- name: one\nSELECT 1\n"},
		{"two texts under one name", "-- name: one\nSELECT 1;\nSELECT 2;\n"},
		{"a name used twice", "-- name: one\nSELECT 1;\n-- name: one\nSELECT 2;\n"},
		{"a text before the first name", "SELECT 1;\n"},
		{"a name without a text", "-- name: one\n-- name: two\nSELECT 1;\n"},
	} {
		if _, err := load(bad.data); err == nil || !strings.HasPrefix(err.Error(), "sql/a.sql: ") {
			t.Errorf("%s: %v", bad.what, err)
		}
	}
	if c, err = load("-- name: one\nSELECT {gone};\n"); err == nil && c.Text("one") != "" && c.Err() == nil {
		t.Error("a fragment that is nowhere is not missed")
	}
}
