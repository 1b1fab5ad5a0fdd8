// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
)

// TestReadTasks compares the tasks of answers with those that encoding/json reads.
func TestReadTasks(t *testing.T) {
	full := WorkerTask{
		Lease: "l1", Action: "a", Version: "1.0.0", Input: json.RawMessage(`{"b":[1,"}"],"a":1.5}`), Account: "acme", Run: "r", Step: "s[0]/x",
		Attempt: 2, EffectKey: "e", TraceParent: "00-1-2-01", LeaseMS: 30_000, ExpiresAt: time.Date(2026, 11, 29, 1, 2, 3, 456_000, time.UTC),
	}
	for i := range reflect.TypeFor[WorkerTask]().NumField() {
		if reflect.ValueOf(full).Field(i).IsZero() {
			t.Fatalf("the test has no %s", reflect.TypeFor[WorkerTask]().Field(i).Name)
		}
	}
	escaped := full
	escaped.Step = `a"b`
	for name, c := range map[string]struct {
		tasks []WorkerTask
		fast  bool
	}{"none": {[]WorkerTask{}, true}, "two": {[]WorkerTask{full, {Input: json.RawMessage(`null`)}}, true}, "an escape": {[]WorkerTask{full, escaped}, false}} {
		t.Run(name, func(t *testing.T) {
			answer, err := json.Marshal(map[string]any{"tasks": c.tasks, "other": []int{1}})
			if err != nil {
				t.Fatal(err)
			}
			got, ok := readTasks(append(answer, '\n'))
			if ok != c.fast || ok && len(got)+len(c.tasks) > 0 && !reflect.DeepEqual(got, c.tasks) {
				t.Errorf("got %+v, %v\nwant %+v, %v", got, ok, c.tasks, c.fast)
			}
		})
	}
	for _, answer := range []string{``, `[]`, `{"tasks":{}}`, `{"tasks":[1]}`, `{"tasks":[{"attempt":"1"}]}`, `{"tasks":[{"lease":1}]}`, `{"tasks":[{"expiresAt":"now"}]}`} {
		if _, ok := readTasks([]byte(answer)); ok {
			t.Errorf("%s is accepted", answer)
		}
	}
}

// A file that an action makes of what can be read once is sent again if the server stops meanwhile.
func TestPutAgain(t *testing.T) {
	var requests atomic.Int64
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1)%2 == 1 {
			_, _ = io.CopyN(io.Discard, r.Body, 50)
			panic(http.ErrAbortHandler)
		}
		sum := sha256.New()
		n, _ := io.Copy(sum, r.Body)
		_ = json.NewEncoder(w).Encode(File{Hash: fmt.Sprintf("sha256_%x", sum.Sum(nil)), SizeBytes: n})
	}))
	defer web.Close()
	c, err := New(Config{URL: web.URL, Key: "k", Sleep: func(context.Context, time.Duration) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{100, smallFile, smallFile + 1, 400_000} {
		f := &leaseFiles{client: c, lease: "l"}
		data := bytes.Repeat([]byte("x"), size)
		info, err := f.Put(t.Context(), io.MultiReader(bytes.NewReader(data)), "a.txt", "text/plain")
		if want := fmt.Sprintf("sha256_%x", sha256.Sum256(data)); err != nil || info.Hash != want || info.Size != int64(size) {
			t.Errorf("%d bytes: %+v, %v", size, info, err)
		}
		f.close()
	}
	broken := errors.New("broken")
	f := &leaseFiles{client: c, lease: "l"}
	defer f.close()
	if _, err := f.Put(t.Context(), io.MultiReader(strings.NewReader("x"), brokenReader{broken}), "a", ""); fault.CodeOf(err) != fault.FileInvalid || !errors.Is(err, broken) {
		t.Errorf("a source that fails: %v", err)
	}
}

type brokenReader struct{ err error }

func (r brokenReader) Read([]byte) (int, error) { return 0, r.err }
