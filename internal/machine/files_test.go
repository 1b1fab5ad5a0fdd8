// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
)

// The result of inspection at upload is part of run.started and available to
// expressions. A file without one, as in older journals, has an empty object there, so
// that has() is valid (X158, X159).
func TestX158_FilesCarryWhatInspectionFound(t *testing.T) {
	st := &journal.Start{Run: "run_1", Account: "acct", Files: []journal.File{
		{Hash: "sha256_a", Name: "a.pdf", MimeType: "application/pdf", Size: 5, Extended: json.RawMessage(`{"pageCount":3,"title":"T"}`)},
		{Hash: "sha256_b", Size: 6},
		{Hash: "sha256_c", Size: 7, Extended: json.RawMessage(`["no object"]`)},
	}}
	data, err := json.Marshal(st)
	if err != nil {
		t.Fatal(err)
	}
	back, err := journal.DecodeStart(data)
	if err != nil || !reflect.DeepEqual(back.Files, st.Files) {
		t.Fatalf("decoded %+v, %v", back, err)
	}
	old, err := journal.DecodeStart([]byte(`{"run":"r","account":"a","recipe":"x","plan":"p","files":[{"hash":"sha256_a","sizeBytes":5}],"seed":1}`))
	if err != nil || len(old.Files) != 1 || old.Files[0].Extended != nil {
		t.Fatalf("an old journal's files = %+v, %v", old, err)
	}
	var got []any
	for _, f := range newInputs(back, &plan.Plan{}).files().([]any) {
		got = append(got, f.(map[string]any)["extended"])
	}
	want := []any{map[string]any{"pageCount": int64(3), "title": "T"}, map[string]any{}, map[string]any{}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("extended = %#v, want %#v", got, want)
	}
}
