// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
)

// submit writes the record of a job.
func (k *keeping) submit(account, provider, id string, kind journal.JobChangeKind) {
	k.t.Helper()
	c := &journal.JobChange{Kind: kind, Job: journal.Job{Provider: provider, ID: id}, Expires: k.Keeper.now() + hour}
	changes := AppendChanges(nil, c, &Source{Key: store.Key{Account: account, Run: "run_" + id}, Name: "draw", Action: "job-x", Version: "1.0.0"}, k.Keeper.now())
	_, records := new(Unstored).Take(changes, false)
	if _, err := k.put(k.t.Context(), records...); err != nil {
		k.t.Fatal(err)
	}
}

// I17: the jobs of an account are its own; a page reads no more records than its limit, those of a
// provider by the time of their submission.
func TestI17_ListedJobs(t *testing.T) {
	k := keep(t)
	for i := range 7 {
		k.now = k.now.Add(time.Millisecond)
		k.submit("acme", "b", fmt.Sprint("b", 9-i), journal.JobSubmitted)
		k.submit("acme", "a", fmt.Sprint("a", i), journal.JobSubmitted)
		k.submit("acme-2", "a", fmt.Sprint("other", i), journal.JobSubmitted)
		k.submit("acm", "e", fmt.Sprint("another", i), journal.JobSubmitted)
	}
	k.submit("acme", "a", "a3", journal.JobCancelled)
	all := func(q ListQuery) (got string) {
		t.Helper()
		for q.Limit = 3; ; {
			list, next, err := k.List(t.Context(), &q)
			if err != nil || len(list) > 3 {
				t.Fatal(list, err)
			}
			for i := range list {
				got += list[i].ID + " "
			}
			if next == "" {
				return got
			}
			q.After = next
		}
	}
	for _, tt := range []struct {
		q    ListQuery
		want string
	}{
		{ListQuery{Account: "acme"}, "a0 a1 a2 a3 a4 a5 a6 b9 b8 b7 b6 b5 b4 b3 "},
		{ListQuery{Account: "acme", Provider: "b"}, "b9 b8 b7 b6 b5 b4 b3 "},
		{ListQuery{Account: "acme", State: StateCancelling}, "a3 "},
		{ListQuery{Account: "acme", State: StateWaiting, Provider: "a"}, "a0 a1 a2 a4 a5 a6 "},
		{ListQuery{Account: "nobody"}, ""},
	} {
		if got := all(tt.q); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.q, got, tt.want)
		}
	}
	k.submit("acme", "a", "a0", journal.JobEnded)
	if got := all(ListQuery{Account: "acme", Provider: "a"}); strings.Contains(got, "a0") {
		t.Errorf("a job that has ended is listed: %s", got)
	}
	if _, err := k.Find(t.Context(), "acme-2", "a", "a1"); fault.CodeOf(err) != fault.RecordNotFound {
		t.Errorf("a job of another account: %v", err)
	}
	if _, err := k.Poll(t.Context(), "acme-2", "a", "a1"); fault.CodeOf(err) != fault.RecordNotFound {
		t.Errorf("a job of another account is asked about: %v", err)
	}
	if _, err := k.Poll(t.Context(), "acme", "a", "a3"); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("a job that nobody waits for is asked about: %v", err)
	}
}

// I17: tasks that have no record are listed in their places between those that have one, each once.
func TestI17_UnstoredJobsAreListed(t *testing.T) {
	k := keep(t)
	var unstored []Job
	k.cfg.Unstored = func(account string) (list []Job) {
		for _, j := range unstored {
			if j.Account == account {
				list = append(list, j)
			}
		}
		return list
	}
	want := ""
	for i := range 10 {
		k.now = k.now.Add(time.Millisecond)
		j := Job{Provider: Workers, ID: fmt.Sprint("t", 9-i), Account: "acme", Run: "r", Gen: 1, Attempt: 1, Action: "a", Version: "1.0.0", Submitted: k.Keeper.now()}
		if want += j.ID + " "; i%3 > 0 {
			unstored = append(unstored, j)
		}
		if i%3 == 0 || i == 4 { // one of them is being written
			c := put(&j)
			if _, err := k.put(t.Context(), c.RecordChange); err != nil {
				t.Fatal(err)
			}
		}
		unstored = append(unstored, Job{Provider: Workers, ID: fmt.Sprint("other", i), Account: "acme-2", Submitted: k.Keeper.now()})
	}
	slices.Reverse(unstored)
	k.submit("acme", "a", "j", journal.JobSubmitted)
	for _, limit := range []int{1, 2, 3, 100} {
		got := ""
		for q := (ListQuery{Account: "acme", Limit: limit}); ; {
			list, next, err := k.List(t.Context(), &q)
			if err != nil || len(list) > limit {
				t.Fatal(list, err)
			}
			for i := range list {
				got += list[i].ID + " "
			}
			if q.After = next; next == "" {
				break
			}
		}
		if got != want+"j " {
			t.Errorf("pages of %d: %q, want %q", limit, got, want+"j ")
		}
	}
	if list, _, err := k.List(t.Context(), &ListQuery{Account: "acme", Provider: "a", Limit: 9}); err != nil || len(list) != 1 {
		t.Errorf("jobs of another provider: %+v, %v", list, err)
	}
	if s, err := k.Find(t.Context(), "acme", Workers, "t8"); err != nil || s.Run != "r" || s.State != StateWaiting {
		t.Errorf("a task without a record: %+v, %v", s, err)
	}
	if _, err := k.Find(t.Context(), "acme", Workers, "other1"); fault.CodeOf(err) != fault.RecordNotFound {
		t.Errorf("a task of another account: %v", err)
	}
}

// A service that wants a pause gets it, whoever asks.
func TestPollWithinAPause(t *testing.T) {
	k := keep(t)
	k.submit("acme", "a", "j", journal.JobSubmitted)
	k.expect(&Name{Class: Class{Account: "acme", Provider: "a"}, Submitted: k.Keeper.now(), Digest: digest("a/j")}, k.Keeper.now())
	limited := fault.New(fault.RateLimited, "slowly")
	limited.RetryAfterMS = 600_000
	k.later("a", k.providers["a"].pop(), limited)
	k.remember(&Job{Provider: "a", ID: "j"}, limited, false)
	s, err := k.Find(t.Context(), "acme", "a", "j")
	if err != nil || s.PausedUntil != k.Keeper.now()+600*second || s.NextPoll < s.PausedUntil || fault.CodeOf(s.LastError) != fault.RateLimited {
		t.Fatalf("%+v, %v", s, err)
	}
	var f *fault.Error
	if _, err := k.Poll(t.Context(), "acme", "a", "j"); !errors.As(err, &f) || f.Code != fault.RateLimited || f.RetryAfterMS != 600_000 {
		t.Error(err)
	}
	k.now = k.now.Add(11 * time.Minute)
	if s, err = k.Find(t.Context(), "acme", "a", "j"); err != nil || s.PausedUntil != 0 || s.NextPoll > k.Keeper.now()+laterInterval*2 {
		t.Errorf("%+v, %v", s, err)
	}
}

// What was delivered of a job is listed without its body.
func TestListedDeliveries(t *testing.T) {
	k := keep(t)
	k.submit("acme", "acme", "j1", journal.JobSubmitted)
	for _, id := range []string{"one", "two"} {
		if err := k.Deliver(t.Context(), "acme", http.Header{"Job": {"j1"}, "Id": {id}}, []byte(`{"some": "result"}`)); err != nil {
			t.Fatal(err)
		}
	}
	k.deliver("three") // of another length
	list, err := k.Deliveries(t.Context(), &Job{Provider: "acme", ID: "j1"})
	if err != nil || len(list) != 3 {
		t.Fatalf("%+v, %v", list, err)
	}
	for _, d := range list {
		if d.Body != nil || d.Size == 0 || d.Received == 0 || d.Outcome != "" {
			t.Errorf("%+v", d)
		}
	}
}

// I15: how polls went is remembered of a bounded number of jobs, without what an error wraps.
func TestI15_RememberedPolls(t *testing.T) {
	k := keep(t)
	secret := errors.New("Bearer secret")
	for i := range maxPolled + 10 {
		k.remember(&Job{Provider: "a", ID: fmt.Sprint(i)}, fault.Wrap(fault.ProviderError, secret, "%s", strings.Repeat("ä", 1000)), false)
	}
	if n := len(k.polled); n != maxPolled {
		t.Errorf("%d are remembered", n)
	}
	for name, p := range k.polled {
		if errors.Is(p.err, secret) || len(fault.Message(p.err)) > maxPollError || fault.CodeOf(p.err) != fault.ProviderError {
			t.Fatalf("%s: %v", name, p.err)
		}
		k.remember(&Job{Provider: "a", ID: strings.TrimPrefix(name, "a/")}, nil, true)
		if _, ok := k.polled[name]; ok {
			t.Fatal("a job that has ended is remembered")
		}
		break
	}
}
