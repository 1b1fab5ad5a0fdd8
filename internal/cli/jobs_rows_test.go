// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
)

// A bookkeeper is a service that books one row per idempotency key. It holds back its
// answers from call number holdAt on until release is closed, so a process that is
// killed meanwhile never learns the outcome of its open requests.
type bookkeeper struct {
	holdAt  int
	held    chan struct{} // closed when the first answer is held
	release chan struct{}

	mu    sync.Mutex
	calls int
	keys  map[string]string // rows by key
	rows  map[string]int    // keys by row
}

func (b *bookkeeper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // it was killed while it sent
	}
	row, key := string(body), r.Header.Get("Idempotency-Key")
	b.mu.Lock()
	b.calls++
	call := b.calls
	if _, ok := b.keys[key]; !ok {
		b.keys[key] = row
		b.rows[row]++
	} else if b.keys[key] != row {
		b.rows["two rows of one key"]++
	}
	b.mu.Unlock()
	if call == b.holdAt {
		close(b.held)
	}
	if call >= b.holdAt {
		<-b.release
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"n": %d}`, call)
}

// TestJob_KilledBatch kills the real binary in the middle of 5,000 rows and
// goes on with `roux resume`: no row is lost, and none is booked twice.
func TestJob_KilledBatch(t *testing.T) {
	const rows, killAt, atOnce = 5000, 2000, 8
	table := strings.Builder{}
	table.WriteString("id,amount\n")
	for n := 1; n <= rows; n++ {
		fmt.Fprintf(&table, "%d,%d\n", n, 3*n)
	}
	books := &bookkeeper{holdAt: killAt, held: make(chan struct{}), release: make(chan struct{}), keys: map[string]string{}, rows: map[string]int{}}
	server := httptest.NewServer(books)
	defer server.Close()

	_, env := dataEnv(t)
	env = append(env, "ROUX_EGRESS_ALLOW=127.0.0.1/32")
	p := start(t, env, "run", job(t, "book"), "--file", write(t, "rows.csv", table.String()), "--input", "service="+server.URL)
	select {
	case <-books.held:
	case <-p.done:
		t.Fatalf("it ended before row %d:\n%s", killAt, p.said())
	}
	p.signal(os.Kill)
	if code := p.wait(); code != -1 {
		t.Fatalf("it ended with code %d, want killed", code)
	}
	close(books.release)
	before := recordedRows(t, env)
	if len(before) == 0 || len(before) >= killAt {
		t.Errorf("%d rows were recorded before the kill, want some, and fewer than the %d that were sent", len(before), killAt)
	}

	if _, talk, code := roux(t, env, "resume"); code != 0 {
		t.Fatalf("resume ended with code %d\n%s", code, talk)
	}
	run := object[struct {
		Status  string
		Outputs struct{ Rows, Amount int }
	}](t, env, "runs", "get", "@last")
	if run.Status != "completed" || run.Outputs.Rows != rows || run.Outputs.Amount != 3*rows*(rows+1)/2 {
		t.Errorf("the run is %s with %+v, want %d rows of %d in all", run.Status, run.Outputs, rows, 3*rows*(rows+1)/2)
	}
	if after := recordedRows(t, env); len(after) != rows {
		t.Errorf("%d rows are recorded, want %d", len(after), rows)
	}
	books.mu.Lock()
	defer books.mu.Unlock()
	for n := 1; n <= rows; n++ {
		if row := fmt.Sprintf(`{"amount":%d,"id":"%d"}`, 3*n, n); books.rows[row] != 1 {
			t.Errorf("row %s was booked %d times", row, books.rows[row])
		}
	}
	if len(books.rows) != rows || len(books.keys) != rows {
		t.Errorf("%d rows under %d keys were booked, want %d", len(books.rows), len(books.keys), rows)
	}
	if again := books.calls - rows; again < 1 || again > atOnce {
		t.Errorf("%d calls were made again, want those under way at the kill, 1 to %d", again, atOnce)
	}
}

// recordedRows are the calls whose result is recorded, each once.
func recordedRows(t *testing.T, env []string) map[string]bool {
	t.Helper()
	recorded := map[string]bool{}
	for _, ev := range eventsOf(t, env, "node.completed") {
		if !strings.HasSuffix(ev.Payload.Step, ".book") {
			continue
		}
		if recorded[ev.Payload.Step] {
			t.Errorf("%s is recorded twice", ev.Payload.Step)
		}
		recorded[ev.Payload.Step] = true
	}
	return recorded
}

// A sale is a row of the file that is summed up.
type sale struct {
	ID        int     `json:"id"`
	Region    *string `json:"region"`
	Day       string  `json:"day"`
	Cents     int64   `json:"cents"`
	Cancelled bool    `json:"cancelled"`
}

// saleSums are the sums of a group, or of all rows.
type saleSums struct {
	Region *string
	Year   int
	Sales  int64
	Large  int64
	Cents  int64
	Least  int64
	Most   int64
	Mean   float64
}

func (s *saleSums) add(v sale) {
	if s.Sales == 0 || v.Cents < s.Least {
		s.Least = v.Cents
	}
	s.Most = max(s.Most, v.Cents)
	s.Sales++
	s.Cents += v.Cents
	if v.Cents >= 50000 {
		s.Large++
	}
	s.Mean = float64(s.Cents) / float64(s.Sales)
}

func (s *saleSums) same(o *saleSums) bool {
	return o != nil && s.Sales == o.Sales && s.Large == o.Large && s.Cents == o.Cents && s.Least == o.Least && s.Most == o.Most &&
		math.Abs(s.Mean-o.Mean) < 1e-6
}

// TestJob_Totals sums up and groups 20,000 rows of JSON.
func TestJob_Totals(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 14))
	regions := []string{"north", "south", "east", "west", ""}
	sales := make([]sale, 20_000)
	groups, all := map[string]*saleSums{}, &saleSums{}
	for i := range sales {
		year := 2020 + rng.IntN(3)
		v := sale{ID: i, Day: fmt.Sprintf("%d-%02d-01", year, 1+rng.IntN(12)), Cents: rng.Int64N(100_000), Cancelled: i%10 == 9}
		region := regions[rng.IntN(len(regions))]
		if region != "" {
			v.Region = &region // else null, which is a group too
		}
		if sales[i] = v; v.Cancelled {
			continue
		}
		key := fmt.Sprint(region, year)
		if groups[key] == nil {
			groups[key] = &saleSums{}
		}
		groups[key].add(v)
		all.add(v)
	}
	text, err := json.Marshal(sales)
	if err != nil {
		t.Fatal(err)
	}

	_, env := dataEnv(t)
	if _, talk, code := roux(t, env, "run", job(t, "totals"), "--input", "@"+write(t, "input.json", fmt.Sprintf(`{"rows": %s}`, text))); code != 2 ||
		!strings.Contains(talk, "give the run a large list as a file, with --file") {
		t.Errorf("20,000 rows as input: code %d\n%s", code, talk)
	}
	got := jobRun[struct {
		Groups        []saleSums
		Totals        saleSums
		Read, Matched int64
	}](t, env, job(t, "totals"), "--file", write(t, "sales.json", string(text)))
	if got.Read != 20_000 || got.Matched != all.Sales || !got.Totals.same(all) {
		t.Errorf("%d of %d rows give %+v, want %d and %+v", got.Matched, got.Read, got.Totals, all.Sales, *all)
	}
	if len(got.Groups) != len(groups) {
		t.Errorf("%d groups, want %d", len(got.Groups), len(groups))
	}
	for i, g := range got.Groups {
		region := ""
		if g.Region != nil {
			region = *g.Region
		}
		if want := groups[fmt.Sprint(region, g.Year)]; !g.same(want) {
			t.Errorf("%s in %d is %+v, want %+v", region, g.Year, g, want)
		}
		if i > 0 && g.Cents > got.Groups[i-1].Cents {
			t.Errorf("group %d is larger than the one before it", i)
		}
	}
}
