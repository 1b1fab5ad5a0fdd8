// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// The jobs are whole tasks that a newcomer would give to Roux. Their recipes,
// in testdata/jobs, use only what the docs say.

func job(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata/jobs", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// jobRun runs a job to its end and returns its outputs.
func jobRun[T any](t *testing.T, env []string, args ...string) T {
	t.Helper()
	run := object[struct {
		Status  string
		Outputs T
	}](t, env, append([]string{"run"}, args...)...)
	if run.Status != "completed" {
		t.Fatalf("the run is %s, want completed", run.Status)
	}
	return run.Outputs
}

func writePNG(t *testing.T, path string, width, height int) {
	t.Helper()
	m := image.NewRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			m.Set(x, y, color.RGBA{uint8(x), uint8(y), uint8(x + y), 255})
		}
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := png.Encode(f, m); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestJob_Catalogue lists a folder of mixed files and adds up their sizes. Two
// files have equal content, one is empty and one is damaged: each counts.
func TestJob_Catalogue(t *testing.T) {
	report, err := os.ReadFile("../../examples/report.pdf")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	types := map[string]string{"report.pdf": "application/pdf", "cut.pdf": "application/pdf", "picture.png": "image/png",
		"note.txt": "text/plain", "copy.txt": "text/plain", "empty.txt": "text/plain", "table.csv": "text/csv",
		"data.json": "application/json", "unknown.bin": "application/octet-stream"}
	for name, content := range map[string]string{"report.pdf": string(report), "cut.pdf": "%PDF-1.7\n1 0 obj\n<< /Type",
		"note.txt": "two words\n", "copy.txt": "two words\n", "empty.txt": "", "table.csv": "a,b\n1,2\n",
		"data.json": `{"a": [1, 2]}`, "unknown.bin": "\x00\x01\xfe\xff\x00 nothing that is known \x00"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	writePNG(t, filepath.Join(folder, "picture.png"), 30, 20)

	_, env := dataEnv(t)
	out := t.TempDir()
	got := jobRun[struct {
		Files, Bytes int64
		Kinds        []struct {
			Type         string
			Files, Bytes int64
		}
	}](t, env, job(t, "catalogue"), "--file", filepath.Join(folder, "*"), "--save", out)

	var total int64
	files, bytes := map[string]int64{}, map[string]int64{}
	want := map[string][]string{} // rows of the table by name
	for name, kind := range types {
		info, err := os.Stat(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		total, files[kind], bytes[kind] = total+info.Size(), files[kind]+1, bytes[kind]+info.Size()
		want[name] = []string{name, kind, strconv.FormatInt(info.Size(), 10), "", "", ""}
	}
	want["report.pdf"][3], want["picture.png"][4], want["cut.pdf"][5] = "4", "30", "FILE_INVALID"
	if got.Bytes != total || got.Files != int64(len(types)) {
		t.Errorf("%d files of %d bytes, want %d of %d", got.Files, got.Bytes, len(types), total)
	}
	if _, talk, code := roux(t, env, "explain", "@last", "look"); code != 4 || !strings.Contains(talk, "such as each[0].look") {
		t.Errorf("explain of a step in a loop without the item: code %d\n%s", code, talk)
	}
	if len(got.Kinds) != len(files) {
		t.Errorf("%d kinds, want %d", len(got.Kinds), len(files))
	}
	for _, k := range got.Kinds {
		if k.Files != files[k.Type] || k.Bytes != bytes[k.Type] {
			t.Errorf("%s: %d files of %d bytes, want %d of %d", k.Type, k.Files, k.Bytes, files[k.Type], bytes[k.Type])
		}
	}
	f, err := os.Open(filepath.Join(out, "catalogue.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil || len(rows) != len(types)+1 {
		t.Fatalf("the table has %d lines, %v; want %d", len(rows), err, len(types)+1)
	}
	for _, row := range rows[1:] {
		if !slices.Equal(row, want[row[0]]) {
			t.Errorf("the table says %q, want %q", row, want[row[0]])
		}
	}
}

// TestJob_Fetch fetches 20 URLs, of which some ask to wait, some fail at first
// and some always, with at most four at once.
func TestJob_Fetch(t *testing.T) {
	var mu sync.Mutex
	calls, asked := map[string]int{}, map[string][]time.Time{}
	now, most := 0, 0
	four := make(chan struct{}) // closed once four requests are under way
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		if now++; now > most {
			if most = now; most == 4 {
				close(four)
			}
		}
		calls[r.URL.Path]++
		asked[r.URL.Path] = append(asked[r.URL.Path], time.Now())
		call := calls[r.URL.Path]
		mu.Unlock()
		defer func() { mu.Lock(); now--; mu.Unlock() }()
		select {
		case <-four:
		case <-r.Context().Done():
			return
		}
		n, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/page/"))
		switch {
		case n%5 == 1 && call == 1:
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		case n%5 == 2 && call == 1, n%10 == 3:
			w.WriteHeader(http.StatusInternalServerError)
		default:
			fmt.Fprintf(w, "page %02d", n)
		}
	}))
	defer server.Close()
	var urls []string
	for n := range 20 {
		urls = append(urls, fmt.Sprintf("%s/page/%d", server.URL, n))
	}
	input, err := json.Marshal(map[string]any{"urls": urls})
	if err != nil {
		t.Fatal(err)
	}

	_, env := dataEnv(t)
	env = append(env, "ROUX_EGRESS_ALLOW=127.0.0.1/32")
	got := jobRun[struct {
		Lines []struct {
			URL, Problem string
			OK           bool
			Bytes        int
		}
		Summary []struct {
			OK           bool
			Pages, Bytes int
		}
	}](t, env, job(t, "fetch"), "--input", "@"+write(t, "urls.json", string(input)), "--timeout", "1m")

	mu.Lock()
	defer mu.Unlock()
	if most != 4 {
		t.Errorf("%d requests at once, want 4", most)
	}
	if open := mostOpen(t, env, ".line"); open != 4 {
		t.Errorf("%d URLs were worked on at once, want 4", open)
	}
	if len(got.Lines) != len(urls) {
		t.Fatalf("the report has %d lines, want %d", len(got.Lines), len(urls))
	}
	for n, line := range got.Lines {
		path := fmt.Sprintf("/page/%d", n)
		tries := 1
		switch {
		case n%10 == 3:
			tries = 3
		case n%5 == 1, n%5 == 2:
			tries = 2
		}
		ok := n%10 != 3
		if line.URL != urls[n] || line.OK != ok || ok != (line.Bytes == len("page 00")) ||
			ok != (line.Problem == "") || !ok && !strings.Contains(line.Problem, "500 Internal Server Error") {
			t.Errorf("line %d is %+v", n, line)
		}
		if calls[path] != tries {
			t.Errorf("%s was asked for %d times, want %d", path, calls[path], tries)
		}
		if at := asked[path]; n%5 == 1 && len(at) > 1 && at[1].Sub(at[0]) < time.Second {
			t.Errorf("%s was asked for again after %s, before the second that it asked for", path, at[1].Sub(at[0]))
		}
	}
	for _, s := range got.Summary {
		if want := map[bool]int{true: 18, false: 2}[s.OK]; s.Pages != want {
			t.Errorf("%d pages that are ok = %t, want %d", s.Pages, s.OK, want)
		}
	}
	if len(got.Summary) != 2 {
		t.Errorf("the summary is %+v", got.Summary)
	}
}

// mostOpen returns how many iterations the newest run had open at once according to its
// journal. last is the name of the last step of an iteration.
func mostOpen(t *testing.T, env []string, last string) (most int) {
	t.Helper()
	open := 0
	for _, ev := range object[[]eventLineJSON](t, env, "events", "@last") {
		switch {
		case ev.Type == "node.progress":
			open++
		case ev.Type == "node.completed" && strings.HasSuffix(ev.Payload.Step, last):
			open--
		}
		most = max(most, open)
	}
	return most
}

// TestJob_Sizes makes three sizes of one image under chosen names.
func TestJob_Sizes(t *testing.T) {
	picture := filepath.Join(t.TempDir(), "IMG_0001.png")
	writePNG(t, picture, 1200, 900)
	_, env := dataEnv(t)
	out := t.TempDir()
	got := jobRun[struct{ Pictures []string }](t, env, job(t, "sizes"), "--file", picture, "--input", "title=harbour", "--save", out)
	if len(got.Pictures) != 3 {
		t.Errorf("%d pictures, want 3", len(got.Pictures))
	}
	want := map[string]image.Point{"harbour-small-160.jpg": {X: 160, Y: 120}, "harbour-middle-480.jpg": {X: 480, Y: 360}, "harbour-wide-800.jpg": {X: 800, Y: 600}}
	saved, err := os.ReadDir(out)
	if err != nil {
		t.Fatal(err)
	}
	if len(saved) != len(want) {
		t.Errorf("%d files were saved, want %d", len(saved), len(want))
	}
	for _, entry := range saved {
		f, err := os.Open(filepath.Join(out, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		config, format, err := image.DecodeConfig(f)
		f.Close()
		if size := (image.Point{X: config.Width, Y: config.Height}); err != nil || format != "jpeg" || size != want[entry.Name()] {
			t.Errorf("%s is a %s of %v, %v; want a jpeg of %v", entry.Name(), format, size, err, want[entry.Name()])
		}
	}
}
