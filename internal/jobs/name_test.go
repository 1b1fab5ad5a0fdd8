// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"maps"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
)

// The name of a record has what is needed of a job at a start, whatever its parts are.
func TestNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[a-z0-9/@._-]{1,20}`)
		j := Job{
			Account: text.Draw(t, "account"), Provider: strings.ReplaceAll(text.Draw(t, "provider"), "/", "-"), ID: text.Draw(t, "id"),
			Action: text.Draw(t, "action"), Version: "1.0.0", Service: rapid.SampledFrom([]string{"", "main", "a/b", strings.Repeat("x", 1000)}).Draw(t, "service"), Pinned: rapid.SampledFrom([]string{"", "main"}).Draw(t, "pinned"),
		}
		at := rapid.Int64Range(0, 1<<60).Draw(t, "at")
		name := nameOf(&j, at)
		n, ok := ParseName(name)
		if !ok || len(name) > store.MaxRecordText || n.Account != j.Account || n.Provider != j.Provider || n.Submitted != at || n.Digest != digest(j.Provider+"/"+j.ID) {
			t.Fatalf("%q is read as %+v, %t", name, n, ok)
		}
		if fits := !strings.Contains(j.Action+j.Service, "/") && len(j.Service) < 100; n.Whole != fits {
			t.Fatalf("%q is whole: %t, want %t", name, n.Whole, fits)
		}
		if n.Whole && (n.Action != j.Action || n.Version != j.Version || n.Service != j.Service || n.Pinned != j.Pinned) {
			t.Fatalf("%q is read as %+v", name, n)
		}
	})
	for _, bad := range []string{"", "/", "a/b", "a/b/0123456789abcdef", strings.Repeat("/", 20), tail(1, digest("x")), "a/p/" + tail(-1, digest("x"))} {
		if n, ok := ParseName(bad); ok {
			t.Errorf("%q is read as %+v", bad, n)
		}
	}
}

// I22: the jobs that steps wait for are counted by what tells which slots they hold.
func TestI22_CountedJobs(t *testing.T) {
	k := keep(t)
	k.submit("acme", "a", "j1", journal.JobSubmitted)
	k.submit("acme", "a", "j2", journal.JobSubmitted)
	k.submit("acme", "a", "j3", journal.JobSubmitted)
	k.submit("acme", "a", "j4", journal.JobSubmitted)
	k.submit("acme", "b", "j1", journal.JobSubmitted)
	k.submit("other", "a", "j5", journal.JobSubmitted)
	k.submit("acme", "a", "j3", journal.JobCancelled)
	k.submit("acme", "a", "j4", journal.JobEnded)
	got, whole, err := Count(t.Context(), k.store, func(provider string) bool { return provider == "a" })
	want := map[Class]int{{"acme", "a", "job-x", "1.0.0", "", ""}: 2, {"other", "a", "job-x", "1.0.0", "", ""}: 1}
	if err != nil || !whole || !maps.Equal(got, want) {
		t.Errorf("%v, %t, %v; want %v", got, whole, err, want)
	}
}

// After a start the keeper knows all jobs by their names, and asks about each at its time.
func TestPollsAfterAStart(t *testing.T) {
	k := keep(t)
	for _, id := range []string{"j1", "j2", "j3"} {
		k.submit("acme", "a", id, journal.JobSubmitted)
	}
	k.submit("acme", "@workers", "task", journal.JobSubmitted)
	submitted := k.Keeper.now()
	k.now = k.now.Add(time.Hour)
	k.began = k.Keeper.now()
	if err := k.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, _ := k.Planned(); n != 3 {
		t.Fatalf("%d polls are planned", n)
	}
	k.submit("acme", "a", "j2", journal.JobEnded)
	seen := ""
	for range 3 {
		one := k.providers["a"].pop()
		if one.submitted != submitted || one.at <= k.Keeper.now() || one.at > k.Keeper.now()+laterInterval*12/10 {
			t.Errorf("%+v is planned, submitted at %d, at %d", one, submitted, k.Keeper.now())
		}
		j, ok, err := k.planned(t.Context(), one)
		if err != nil {
			t.Error(err)
		}
		if ok {
			seen += j.ID + " " + j.Run + " "
			if s, err := k.Find(t.Context(), "acme", "a", j.ID); err != nil || s.NextPoll != one.at {
				t.Errorf("it is shown that %s is asked about at %d, planned is %d: %v", j.ID, s.NextPoll, one.at, err)
			}
		}
	}
	if seen != "j1 run_j1 j3 run_j3 " && seen != "j3 run_j3 j1 run_j1 " {
		t.Errorf("found %q", seen)
	}
}
