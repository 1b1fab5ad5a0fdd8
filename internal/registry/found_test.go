// SPDX-License-Identifier: Apache-2.0

//go:build !small

package registry

import (
	"bytes"
	"testing"
)

// What a reference stands for has the files that its text includes, and those that they include,
// wherever they lie.
func TestFoundIncludes(t *testing.T) {
	texts := map[string]string{
		"digest.yaml": "name: digest\nid: recipe_d" + body, "sub/b.yaml": "name: b" + body, "sub/c.yaml": "name: c" + body, "plain.yaml": "name: plain" + body,
	}
	find := func() []Found {
		t.Helper()
		dir := files(t, texts)
		f := NewFiles(Config{Recipe: "x.yaml", Dir: dir, MaxSource: 1 << 20})
		digest, err := f.Find("recipe_d", "0")
		if err != nil {
			t.Fatal(err)
		}
		b, err := f.File(digest.File, "sub/b.yaml")
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []string{"c.yaml", "../digest.yaml"} { // a circle is refused by others
			if _, err := f.File(b.File, at); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := f.Find("plain", ""); err != nil {
			t.Fatal(err)
		}
		return f.Found()
	}
	first := find()
	if len(first) != 2 || first[0].Ref != "recipe_d@0" || first[0].Name != "digest" || len(first[0].Files) == 0 || first[1].Files != nil {
		t.Fatalf("found %+v", first)
	}
	if again := find(); !bytes.Equal(again[0].Files, first[0].Files) {
		t.Error("the hash is that of a directory")
	}
	texts["sub/c.yaml"] += "# changed\n"
	if again := find(); bytes.Equal(again[0].Files, first[0].Files) || again[0].Text != first[0].Text {
		t.Error("a change of a file that is included by one that is included was not seen")
	}
}
