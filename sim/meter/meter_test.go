// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// sec is a time after the beginning of a histogram.
func sec(s float64) int64 { return int64(s * 1e6) }

// steady are n steps of a second each that keep a number of slots busy.
func steady(n, slots int) (spans []Span) {
	for i := range n {
		at := float64(i / slots)
		spans = append(spans, Span{Kind: "local", At: number("s", i), Begin: sec(at), End: sec(at + 1)})
	}
	return spans
}

func TestOccupied(t *testing.T) {
	restart := []Gap{{sec(10), sec(12)}}
	for _, tt := range []struct {
		name     string
		spans    []Span
		restarts []Gap
		share    float64
		problem  string
	}{
		{"all slots", steady(60, 3), nil, 1, ""},
		{"one slot stays empty", steady(60, 2), nil, 2. / 3, ""},
		{"a restart", append(steady(30, 3), later(steady(30, 3), 12)...), restart, 1, ""},
		{"the same without one", append(steady(30, 3), later(steady(30, 3), 12)...), nil, 0.9, ""},
		{"a worker that was killed holds a slot", killed(5, 8.5), nil, 1, ""},
		{"and longer than its lease and a second", killed(5, 12), nil, 0.96, "later than its lease"},
		{"a step is missing", append([]Span{{At: "lost", Begin: 0, End: 1, Dead: true}}, steady(60, 3)...), nil, 1, "never carried out"},
		{"too few", steady(3, 3), nil, 0, "too few"},
	} {
		use, problems := Occupied(tt.spans, 3, tt.restarts, 3*time.Second)
		if all := strings.Join(problems, "\n"); tt.problem == "" && all != "" || !strings.Contains(all, tt.problem) {
			t.Errorf("%s: problems %q, want %q", tt.name, all, tt.problem)
		}
		if use.Share < tt.share-0.02 || use.Share > tt.share+0.02 {
			t.Errorf("%s: %.3f of the slots were used, want %.3f (%+v)", tt.name, use.Share, tt.share, use)
		}
	}
}

func later(spans []Span, s float64) []Span {
	for i := range spans {
		spans[i].At, spans[i].Begin, spans[i].End = "later "+spans[i].At, spans[i].Begin+sec(s), spans[i].End+sec(s)
	}
	return spans
}

// killed are steps in two slots, and in a third one a step whose worker was killed, and that went on at a time.
func killed(at, again float64) []Span {
	spans := append(steady(60, 2), Span{Kind: "remote", At: "r", Begin: sec(at), End: sec(at), Dead: true}, Span{Kind: "remote", At: "r", Begin: sec(again), End: sec(again + 1)})
	for s := 0.; s < 29; s++ {
		if s < at || s >= again+1 {
			spans = append(spans, Span{Kind: "local", At: number("t", int(s)), Begin: sec(s), End: sec(min(s+1, 30))})
		}
	}
	return spans
}

func TestTokens(t *testing.T) {
	calls := func(every float64, n int) (list []Span) {
		for i := range n {
			list = append(list, Span{Begin: sec(every * float64(i)), Tokens: 100})
		}
		return list
	}
	if f, problems := Tokens(calls(1, 121), 6000, 1000, 0, nil, 0); len(problems) > 0 || f.Minute != 6000 || f.Share < 0.99 || f.Share > 1.01 {
		t.Errorf("as many as permitted: %+v, %v", f, problems)
	}
	if f, problems := Tokens(append(calls(0, 10), later(calls(1, 119), 1)...), 6000, 1000, 1000, nil, 0); len(problems) > 0 || f.Minute != 6900 {
		t.Errorf("a burst before: %+v, %v", f, problems)
	}
	if _, problems := Tokens(append(calls(0, 11), later(calls(1, 119), 1)...), 6000, 1000, 1000, nil, 0); len(problems) == 0 {
		t.Error("one call more than the burst is not seen")
	}
	if _, problems := Tokens(calls(0.9, 200), 6000, 1000, 0, nil, 0); len(problems) == 0 {
		t.Error("a tenth more than permitted is not seen")
	}
	if f, problems := Tokens(calls(2, 120), 6000, 1000, 0, nil, 0); len(problems) > 0 || f.Share > 0.52 {
		t.Errorf("half of what is permitted: %+v, %v", f, problems)
	}
}

func TestBreaker(t *testing.T) {
	call := func(at float64, failed bool) Span { return Span{Begin: sec(at), End: sec(at + 0.1), Failed: failed} }
	outage := Gap{sec(1), sec(8)}
	before := []Span{call(0, false), call(0.5, false), call(1, true), call(1.2, true)} // the second of min 2 opens it at 1.3
	for _, tt := range []struct {
		name    string
		after   []Span
		probes  int
		problem string
	}{
		{"one call after each time", []Span{call(3.4, true), call(5.6, true), call(8, false), call(8.2, false)}, 3, ""},
		{"one that was on its way", []Span{call(1.35, true), call(3.4, true), call(8, false)}, 2, ""},
		{"one too early", []Span{call(2.5, true), call(8, false)}, 1, "after the breaker has opened"},
		{"two that try it", []Span{call(3.4, true), call(3.45, true), call(8, false)}, 2, "while another one tries"},
	} {
		trip, problems := Breaker(append(append([]Span(nil), before...), tt.after...), 0.5, 2, 2*time.Second, outage, 100*time.Millisecond)
		if all := strings.Join(problems, "\n"); tt.problem == "" && all != "" || !strings.Contains(all, tt.problem) {
			t.Errorf("%s: problems %q, want %q", tt.name, all, tt.problem)
		}
		if trip.Opened != 1 || trip.Probes != tt.probes || trip.Resumed != 0 {
			t.Errorf("%s: %+v", tt.name, trip)
		}
	}
}

func TestRetries(t *testing.T) {
	var calls []Span
	for i := range 20 {
		calls = append(calls, Span{At: number("s", i), Begin: sec(0.1 * float64(i))})
	}
	retries := func(n int) []Span {
		list := append([]Span(nil), calls...)
		for i := range n {
			list = append(list, Span{At: number("s", i), Begin: sec(2)})
		}
		return list
	}
	if l, problems := Retries(retries(6), 0.2, 1, 1, 0, 0); len(problems) > 0 || l.First != 20 || l.Retries != 6 || l.Share != 1 {
		t.Errorf("a fifth of 20 and two in two seconds: %+v, %v", l, problems)
	}
	if _, problems := Retries(retries(8), 0.2, 1, 1, 0, 0); len(problems) != 1 {
		t.Errorf("one more than the burst: %v", problems)
	}
}

// A caller that has gone is dead work at once, a job goes on without it, and the same key gives the same job.
func TestMeter(t *testing.T) {
	delivered := make(chan string, 10)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		delivered <- r.Header.Get("webhook-signature") + " " + string(body)
	}))
	defer hook.Close()
	m := &Meter{Hold: 50 * time.Millisecond, Secret: []byte("secret"), Do: hook.Client().Do}
	url, stop, err := m.Start()
	if err != nil {
		t.Fatal(err)
	}
	post := func(ctx context.Context, path, key, body string) string {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+path, strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return ""
		}
		req.Header.Set("Idempotency-Key", key)
		res, err := hook.Client().Do(req)
		if err != nil {
			return "" // it was given up
		}
		text, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		return string(text)
	}
	if got := post(t.Context(), "/hold?kind=local&at=a", "", ""); got != "{\"at\":\"a\"}\n" {
		t.Errorf("the answer is %q", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	m.Hold = time.Hour
	post(ctx, "/hold?kind=local&at=b", "", "")
	for {
		if spans := m.Spans(); len(spans) == 2 && spans[1].Dead {
			break
		}
		time.Sleep(time.Millisecond)
	}
	m.Hold = 50 * time.Millisecond
	submission := `{"input": {"at": "c"}, "callback": "` + hook.URL + `"}`
	if first, again := post(t.Context(), "/plain/v1/jobs", "k", submission), post(t.Context(), "/plain/v1/jobs", "k", submission); first != again || !strings.Contains(first, `"working"`) {
		t.Errorf("a job, submitted twice: %s %s", first, again)
	}
	if got := <-delivered; !strings.HasPrefix(got, "v1,") || !strings.Contains(got, `"done"`) {
		t.Errorf("the webhook is %s", got)
	}
	if most, _ := m.Most(); most != 1 || len(m.Spans()) != 3 {
		t.Errorf("%d at once of %+v", most, m.Spans())
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
