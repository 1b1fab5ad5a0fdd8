// SPDX-License-Identifier: Apache-2.0

package blob

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
)

type lookFunc = func(ctx context.Context, file action.File) (json.RawMessage, error)

func openWith(t *testing.T, dir string, look lookFunc) *Store {
	t.Helper()
	s, err := Open(Config{Dir: dir, Inspect: look})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// X159: what inspection finds is recorded at upload and returned by every call that
// returns a FileInfo, also in a later process. A failed inspection never fails the
// upload: the facts that are known are recorded, together with the problem.
func TestX159_InspectedAtUpload(t *testing.T) {
	for _, tt := range []struct {
		name  string
		found string
		err   error
		want  string
	}{
		{"facts", `{"pageCount":3}`, nil, `{"pageCount":3}`},
		{"sorted", `{"width":2, "height":1}`, nil, `{"height":1,"width":2}`},
		{"nothing", `{}`, nil, ``},
		{"a problem", ``, fault.New(fault.FileInvalid, "the PDF file is damaged"), `{"problem":{"code":"FILE_INVALID","message":"the PDF file is damaged"}}`},
		{"facts and a problem", `{"encrypted":true}`, fault.New(fault.FileEncrypted, "locked"), `{"encrypted":true,"problem":{"code":"FILE_ENCRYPTED","message":"locked"}}`},
		{"no object", `[1]`, nil, `{"problem":{"code":"INTERNAL_ERROR","message":"the inspection found no JSON object"}}`},
		{"too much", `{"title":"` + strings.Repeat("x", maxExtended) + `"}`, nil,
			`{"problem":{"code":"FILE_TOO_LARGE","message":"the inspection found 16396 bytes of facts, more than the 16384 that are recorded"}}`},
		{"a long problem", ``, errors.New(strings.Repeat("é", 1000)), `{"problem":{"code":"INTERNAL_ERROR","message":"` + strings.Repeat("é", maxProblem/2) + `…"}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			looks := 0
			s := openWith(t, dir, func(_ context.Context, file action.File) (json.RawMessage, error) {
				looks++
				if data, err := io.ReadAll(file); err != nil || string(data) != "content" || file.Info().Size != 7 {
					t.Errorf("the inspection reads %q, %v, %+v", data, err, file.Info())
				}
				return json.RawMessage(tt.found), tt.err
			})
			info := put(t, s, "acme", "content", "a.txt")
			again := put(t, s, "acme", "content", "b.txt")
			reopened := open(t, dir)
			later, err := reopened.Info(ctx, "acme", info.Hash)
			if err != nil {
				t.Fatal(err)
			}
			f, err := reopened.Open(ctx, "acme", info.Hash)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			for what, got := range map[string]action.FileInfo{"Put": info, "second Put": again, "Info": later, "Open": f.Info()} {
				name := "a.txt"
				if what == "second Put" {
					name = "b.txt" // the name that it came with
				}
				if string(got.Extended) != tt.want || got.Name != name {
					t.Errorf("%s: extended %s of %q\nwant %s", what, got.Extended, got.Name, tt.want)
				}
			}
			if looks != 1 {
				t.Errorf("looked %d times, want once: content keeps its facts", looks)
			}
		})
	}
}

// Content that was stored before uploads were inspected is inspected when it is stored
// again, and keeps its name and type.
func TestInspectedLater(t *testing.T) {
	dir := t.TempDir()
	put(t, open(t, dir), "acme", "content", "a.md")
	s := openWith(t, dir, func(context.Context, action.File) (json.RawMessage, error) { return json.RawMessage(`{"n":1}`), nil })
	info := put(t, s, "acme", "content", "b.csv")
	if string(info.Extended) != `{"n":1}` || info.Name != "b.csv" || info.MimeType != "text/csv" {
		t.Errorf("info = %+v", info)
	}
	if got, err := s.Info(ctx, "acme", info.Hash); err != nil || string(got.Extended) != `{"n":1}` {
		t.Errorf("recorded %+v, %v", got, err)
	}
}

// An inspection that hangs delays an upload for five seconds if it obeys its context,
// and otherwise for at most inspectGrace more. The next upload of that content is
// inspected again.
func TestHostileFileDoesNotHoldItsUpload(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var looks atomic.Int32
			release := make(chan struct{})
			s, err := Open(Config{Dir: t.TempDir(), Inspect: func(ctx context.Context, _ action.File) (json.RawMessage, error) {
				if looks.Add(1) > 1 {
					return json.RawMessage(`{"n":1}`), nil
				}
				if deaf {
					<-release
					return nil, nil
				}
				<-ctx.Done()
				return json.RawMessage(`{"encrypted":true}`), context.Cause(ctx)
			}})
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			info := put(t, s, "acme", "content", "")
			if took := time.Since(began); took < inspectFor || took > inspectFor+inspectGrace {
				t.Errorf("deaf %v: the upload took %s, want about %s", deaf, took, inspectFor)
			}
			if want := `"problem":{"code":"STEP_TIMEOUT","message":"inspecting the file took longer than 5s"}`; !strings.Contains(string(info.Extended), want) {
				t.Errorf("deaf %v: extended = %s", deaf, info.Extended)
			}
			if !deaf && !strings.Contains(string(info.Extended), `"encrypted":true`) {
				t.Errorf("what was known is lost: %s", info.Extended)
			}
			if info = put(t, s, "acme", "content", ""); string(info.Extended) != `{"n":1}` {
				t.Errorf("after a second upload: %s", info.Extended)
			}
			close(release)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A19, I16: an inspection that panics is a problem of its file.
func TestI16_InspectionPanics(t *testing.T) {
	s := openWith(t, t.TempDir(), func(context.Context, action.File) (json.RawMessage, error) { panic("index out of range") })
	info := put(t, s, "acme", "content", "")
	if !strings.Contains(string(info.Extended), `{"code":"FILE_INVALID","message":"the file broke its inspection: index out of range"}`) {
		t.Errorf("extended = %s", info.Extended)
	}
}

// If the caller's context ends during the inspection, nothing is recorded about the
// file.
func TestInspectionCutShort(t *testing.T) {
	ctx, cancel := context.WithCancel(ctx)
	s := openWith(t, t.TempDir(), func(context.Context, action.File) (json.RawMessage, error) {
		cancel()
		return nil, context.Canceled
	})
	info, err := s.Put(ctx, "acme", strings.NewReader("content"), "", "")
	if err != nil || info.Extended != nil {
		t.Errorf("Put = %+v, %v", info, err)
	}
	if rec, err := s.readSidecar(placeOf("acme", info.Hash)); err != nil || rec.Inspected {
		t.Errorf("recorded %+v, %v", rec, err)
	}
}

// A sidecar that damage or a person made too large is not read; the type is detected
// from the bytes.
func TestSidecarIsBounded(t *testing.T) {
	s := open(t, t.TempDir())
	info := put(t, s, "acme", "content", "a.md")
	f, err := s.root.OpenFile(placeOf("acme", info.Hash).sidecar(), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	big := bytes.Repeat([]byte(" "), maxSidecar)
	if _, err := f.Write(append(big, `{"mimeType":"text/x"}`...)); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Info(ctx, "acme", info.Hash); err != nil || got.MimeType != "text/plain" {
		t.Errorf("Info = %+v, %v", got, err)
	}
}
