// SPDX-License-Identifier: Apache-2.0

package examples_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"image"
	_ "image/jpeg"
	_ "image/png"
	"io"
	"net/http/httptest"
	"net/netip"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux"
	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/examples"
	"github.com/roux-engine/roux/examples/service"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/media"
)

func TestMain(m *testing.M) {
	media.Dispatch()
	os.Exit(m.Run())
}

// An exampleRun runs one example as its comment says.
type exampleRun struct {
	t       *testing.T
	engine  *roux.Engine
	service *service.Service
	url     string
	run     string
	result  roux.Result
	out     map[string]any
}

// try runs the example on its own files (or the given ones) to its end; during
// is called once it has begun.
func try(t *testing.T, name string, input func(url string) map[string]any, files []string, during func(*exampleRun)) *exampleRun {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	x := &exampleRun{t: t, service: service.New()}
	server := httptest.NewServer(x.service)
	t.Cleanup(server.Close)
	x.url = server.URL
	var err error
	x.engine, err = roux.Open(ctx, roux.Options{Dir: t.TempDir(), EgressAllow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.engine.Close() })
	e, ok := examples.Find(name)
	if !ok {
		t.Fatalf("there is no example %s", name)
	}
	if files == nil {
		files = e.Files
	}
	req := roux.Request{Source: e.Recipe}
	if req.Recipe, err = examples.Read(e.Recipe); err != nil {
		t.Fatal(err)
	}
	if input != nil {
		req.Input = input(server.URL)
	}
	for _, f := range files {
		data, err := examples.Read(f)
		if err != nil {
			t.Fatal(err)
		}
		info, err := x.engine.Put(ctx, bytes.NewReader(data), path.Base(f), "")
		if err != nil {
			t.Fatal(err)
		}
		req.Files = append(req.Files, info)
	}
	if x.run, err = x.engine.Start(ctx, req); err != nil {
		t.Fatal(err)
	}
	if during != nil {
		during(x)
	}
	if x.result, err = x.engine.Wait(ctx, x.run); err != nil {
		t.Fatal(err)
	}
	if len(x.result.Outputs) > 0 {
		if err := json.Unmarshal(x.result.Outputs, &x.out); err != nil {
			t.Fatal(err)
		}
	}
	return x
}

// want checks the final status of the run and its cost.
func (x *exampleRun) want(status string, code fault.Code, credits int64) {
	x.t.Helper()
	got := fault.Code("")
	if x.result.Err != nil {
		got = x.result.Err.Code
	}
	if x.result.Status != status || got != code || x.result.Credits != credits {
		x.t.Errorf("the run is %s (%v), %d credits; want %s (%s), %d", x.result.Status, x.result.Err, x.result.Credits, status, code, credits)
	}
}

// equal compares an output with JSON.
func (x *exampleRun) equal(name, want string) {
	x.t.Helper()
	got, err := json.Marshal(x.out[name])
	if err != nil || string(got) != want {
		x.t.Errorf("output %s = %s, want %s", name, got, want)
	}
}

func (x *exampleRun) file(hash any) (data []byte, info action.FileInfo) {
	x.t.Helper()
	f, err := x.engine.File(context.Background(), hash.(string))
	if err != nil {
		x.t.Fatal(err)
	}
	defer f.Close()
	if data, err = io.ReadAll(f); err != nil {
		x.t.Fatal(err)
	}
	return data, f.Info()
}

// events returns the types of the run's events with their steps.
func (x *exampleRun) events() (list []string) {
	x.t.Helper()
	for ev, err := range x.engine.Watch(context.Background(), x.run, 0) {
		if err != nil {
			x.t.Fatal(err)
		}
		list = append(list, strings.TrimSpace(ev.Type+" "+ev.Step))
	}
	return list
}

func TestDocumentDigest(t *testing.T) {
	x := try(t, "document-digest", nil, nil, nil)
	x.want("completed", "", 6)
	digest := x.out["digest"].(map[string]any)
	if digest["title"] != "The Ferry of Lindholm: A Year in Numbers" || digest["pages"] != 4.0 || digest["words"].(float64) < 500 {
		t.Errorf("digest = %v", digest)
	}
	x = try(t, "document-digest", nil, []string{"photo.jpg"}, nil)
	x.want("failed", fault.FileUnsupported, 1)
}

func TestPhotoPack(t *testing.T) {
	x := try(t, "photo-pack", nil, nil, nil)
	x.want("completed", "", 1+4*2)
	x.equal("was", `{"height":900,"orientation":6,"width":1200}`)
	sizes := []string{"150x200 jpeg", "600x800 jpeg", "900x1200 jpeg", "900x1200 png"}
	for i, f := range x.out["files"].([]any) {
		data, info := x.file(f.(map[string]any)["file"])
		img, format, err := image.Decode(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.ReplaceAll(img.Bounds().Size().String(), ",", "x"); got != "("+strings.Fields(sizes[i])[0]+")" || format != strings.Fields(sizes[i])[1] {
			t.Errorf("%s is %s %s, want %s", info.Name, got, format, sizes[i])
		}
		if bytes.Contains(data, []byte("Exif")) || bytes.Contains(data, []byte("Invented Camera")) {
			t.Errorf("%s says where it was taken", info.Name)
		}
		// Upright: the sky above is blue, the water below is dark.
		b := img.Bounds()
		r, _, blue, _ := img.At(b.Dx()/2, 2).RGBA()
		if blue < r {
			t.Errorf("%s does not stand upright", info.Name)
		}
	}
	try(t, "photo-pack", nil, []string{"report.pdf"}, nil).want("failed", fault.FileUnsupported, 1)
}

// Each PDF is read in a run of its own; one of them cannot be read, and the others go on.
func TestPDFLibrary(t *testing.T) {
	x := try(t, "pdf-library", nil, nil, nil)
	x.want("completed", "", 3*(1+5))
	x.equal("unreadable", `["broken-scan.pdf"]`)
	documents, ok := x.out["documents"].([]any)
	if !ok || len(documents) != 3 {
		t.Fatalf("the documents are %v", x.out["documents"])
	}
	for _, d := range documents {
		summary, ok := d.(map[string]any)["summary"].(map[string]any)
		if pages, n := summary["pages"], summary["characters"]; !ok || pages == nil || n == nil {
			t.Errorf("%v has no pages or no text", d)
		}
	}
}

func TestReceipts(t *testing.T) {
	x := try(t, "receipts", nil, nil, nil)
	x.want("completed", "", 3*5+1)
	x.equal("receipts", "3")
	x.equal("unreadable", `["broken-scan.pdf"]`)
	data, info := x.file(x.out["csv"])
	const want = "file,shop,date,total,error\n" +
		"bakery.pdf,Corner Bakery,2026-03-02,12.40,\n" +
		"broken-scan.pdf,,,,the PDF file is damaged beyond repair\n" +
		"hotel.pdf,Hotel at the Sound,2026-03-03,202.00,\n" +
		"taxi.pdf,Harbour Taxi,2026-03-04,18.50,\n"
	if got := strings.ReplaceAll(string(data), "\r\n", "\n"); got != want || info.MimeType != "text/csv" {
		t.Errorf("%s (%s):\n%s\nwant\n%s", info.Name, info.MimeType, got, want)
	}
}

func TestResilientFetch(t *testing.T) {
	x := try(t, "resilient-fetch", func(url string) map[string]any { return map[string]any{"url": url + "/news?fail=2"} }, nil, nil)
	x.want("completed", "", 1)
	x.equal("headline", `"Ferry sails again"`)
	if got := x.service.Log(); len(got) != 3 {
		t.Errorf("the service was asked %q, want three times", got)
	}
	// Retry-After: 1 twice.
	events := x.events()
	if n := count(events, "node.retried fetch"); n != 2 {
		t.Errorf("%d retries in %q", n, events)
	}
	x = try(t, "resilient-fetch", func(url string) map[string]any { return map[string]any{"url": url + "/down"} }, nil, nil)
	x.want("completed", "", 0)
	x.equal("source", `"memory"`)
	if got := x.service.Log(); len(got) != 4 {
		t.Errorf("the service was asked %q, want four times", got)
	}
}

func TestRace(t *testing.T) {
	sources := func(fast, slow string) func(url string) map[string]any {
		return func(url string) map[string]any { return map[string]any{"fast": url + fast, "slow": url + slow} }
	}
	x := try(t, "race", sources("/mirror?ms=1", "/mirror?ms=30000"), nil, nil)
	x.want("completed", "", 1)
	x.equal("winner", `"fast"`)
	if events := x.events(); count(events, "node.cancelled race[1].two") != 1 {
		t.Errorf("the loser was not cancelled: %q", events)
	}
	// A failing source does not decide the race.
	x = try(t, "race", sources("/down", "/mirror?ms=1"), nil, nil)
	x.want("completed", "", 1)
	x.equal("winner", `"slow"`)
	try(t, "race", sources("/down", "/down"), nil, nil).want("failed", fault.ProviderError, 0)
}

func TestApproval(t *testing.T) {
	answer := func(data map[string]any) func(*exampleRun) {
		return func(x *exampleRun) {
			for ev, err := range x.engine.Watch(context.Background(), x.run, 0) {
				if err != nil {
					x.t.Fatal(err)
				}
				if ev.Type == "node.waiting" {
					break
				}
			}
			if err := x.engine.Signal(context.Background(), x.run, "approve", data); err != nil {
				x.t.Fatal(err)
			}
		}
	}
	x := try(t, "approval", nil, nil, answer(map[string]any{"approved": true, "by": "Ada"}))
	x.want("completed", "", 6)
	x.equal("approvedBy", `"Ada"`)
	if page, info := x.file(x.out["page"]); info.MimeType != "text/html" || !bytes.Contains(page, []byte("<h1")) {
		t.Errorf("%s: %.200s", info.MimeType, page)
	}
	x = try(t, "approval", nil, nil, answer(map[string]any{"approved": false}))
	x.want("failed", fault.StepFailed, 5)
	if !errors.Is(x.result.Err, fault.StepFailed) || x.result.Err.Msg != "not approved by somebody" {
		t.Errorf("%v", x.result.Err)
	}
}

func TestCappedBatch(t *testing.T) {
	budget := func(n int) func(string) map[string]any {
		return func(string) map[string]any { return map[string]any{"budget": n} }
	}
	x := try(t, "capped-batch", budget(20), nil, nil)
	x.want("completed", "", 15) // the broken file costs nothing
	x.equal("cost", "20")
	x = try(t, "capped-batch", budget(19), nil, nil)
	x.want("failed", fault.InsufficientCredits, 0)
	if events := x.events(); slices.ContainsFunc(events, func(e string) bool { return strings.Contains(e, "read") }) {
		t.Errorf("something was read before the guard: %q", events)
	}
}

func TestCompensation(t *testing.T) {
	x := try(t, "compensation", func(url string) map[string]any { return map[string]any{"service": url} }, nil, nil)
	x.want("failed", fault.HTTPStatus, 2)
	want := []string{"POST /bookings", "POST /payments", "POST /shipments", "DELETE /payments/payment-2", "DELETE /bookings/booking-1"}
	if got := x.service.Log(); !slices.Equal(got, want) {
		t.Errorf("the service was asked %q, want %q", got, want)
	}
}

func count(list []string, what string) (n int) {
	for _, s := range list {
		if s == what {
			n++
		}
	}
	return n
}

// Each section is a document again, and its words are counted.
func TestOutline(t *testing.T) {
	x := try(t, "outline", nil, nil, nil)
	x.want("completed", "", 5+4+11)
	type section struct {
		Title    string
		Words    int
		Sections []section
	}
	var sections []section
	if err := json.Unmarshal(marshal(t, x.out["sections"]), &sections); err != nil {
		t.Fatal(err)
	}
	var lines []string
	var walk func(indent string, list []section)
	walk = func(indent string, list []section) {
		for _, s := range list {
			lines = append(lines, indent+s.Title)
			if s.Words < 40 {
				t.Errorf("%q has %d words", s.Title, s.Words)
			}
			walk(indent+" ", s.Sections)
		}
	}
	walk("", sections)
	want := []string{
		"The Ferry of Lindholm: A Year in Numbers", " Summary", " Crossings and Passengers", "  Who Travels", "  Why the Boat Was Late",
		" The Boat", "  Work Done", "  Work That Waits", " Money", " Outlook", " Method",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("sections\n%q, want\n%q", lines, want)
	}
}

func TestFigures(t *testing.T) {
	x := try(t, "figures", func(string) map[string]any { return map[string]any{"title": "Crossings"} }, nil, nil)
	x.want("completed", "", 4)
	x.equal("passengers", "25065")
	page, _ := x.file(x.out["page"])
	for _, want := range []string{"<h1>Crossings</h1>", "Line north: 930 crossings, 13340 passengers", "Line south: 860 crossings, 11725 passengers", "<p>The busiest month was 2026-03.</p>"} {
		if !bytes.Contains(page, []byte(want)) {
			t.Errorf("there is no %s on\n%s", want, page)
		}
	}
	// Nothing else can be made of a file that is no table.
	try(t, "figures", func(string) map[string]any { return map[string]any{"title": "x"} }, []string{"photo.jpg"}, nil).want("failed", fault.FileUnsupported, 0)
}

func TestMergedPage(t *testing.T) {
	in := func(text string) func(string) map[string]any {
		return func(string) map[string]any { return map[string]any{"title": "Timetable", "text": text} }
	}
	x := try(t, "merged-page", in("The boat sails at seven. It sails again at noon."), nil, nil)
	x.want("completed", "", 6)
	page, _ := x.out["page"].(map[string]any)
	const want = "<h1>Timetable in 10 words</h1>\n<ul>\n<li>The boat sails at seven</li>\n<li>It sails again at noon.</li>\n</ul>\n"
	if text, _ := page["text"].(string); !strings.Contains(text, want) {
		t.Errorf("the page is %q", text)
	}
	sum := func(x *exampleRun) any { return x.out["fingerprint"].(map[string]any)["hex"] }
	if y := try(t, "merged-page", in("The boat sails at seven. It sails again at nine."), nil, nil); sum(x) == sum(y) {
		t.Error("two texts have one fingerprint")
	}
}

func TestMailroom(t *testing.T) {
	x := try(t, "mailroom", nil, nil, nil)
	x.want("completed", "", 3*5+2)
	var list []string
	for _, v := range x.out["letters"].([]any) {
		l := v.(map[string]any)
		list = append(list, l["name"].(string)+": "+l["is"].(string))
	}
	want := []string{
		"bakery.pdf: Corner Bakery, 29 words",
		`broken-scan.pdf: unreadable: recipe "document" failed in step "read": the PDF file is damaged beyond repair`,
		"hotel.pdf: Hotel at the Sound, 34 words", "taxi.pdf: Harbour Taxi, 29 words", "photo.jpg: 200 x 267", "crossings.csv: left",
	}
	if !slices.Equal(list, want) {
		t.Errorf("letters\n%q, want\n%q", list, want)
	}
}

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
