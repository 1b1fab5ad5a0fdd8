// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/retention"
	"github.com/roux-engine/roux/internal/store/memory"
)

// keeps are the policies of three accounts.
type keeps map[string]retention.Policy

func (k keeps) Retention(account string) retention.Policy { return k[account] }

func (k keeps) Shortest() retention.Policy {
	return retention.Policy{Runs: time.Hour, Files: time.Hour, Uploads: 2 * time.Hour}
}

// An account keeps runs, files and uploads for times of its own, shorter or longer than
// those of the server; one that keeps many runs for longer does not hide those of another.
func TestRetentionOfAccounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, blobs := memory.New(memory.Options{}), blobsOf(t)
		policy := retention.Policy{Runs: 24 * time.Hour, Files: 24 * time.Hour, Uploads: 24 * time.Hour}
		policy.Accounts = keeps{
			"long":  {Runs: -1, Files: -1, Uploads: -1},
			"short": {Runs: time.Hour, Files: time.Hour, Uploads: 2 * time.Hour},
			acc:     {Runs: 24 * time.Hour, Files: 24 * time.Hour, Uploads: 24 * time.Hour},
		}
		e := openEngine(t, st, Config{Blobs: blobs, Retention: policy, Accounts: func(string) AccountRules { return AccountRules{Unmetered: true} }}, noop())
		p := planOf(t, "name: m\nsteps:\n  - {id: a, action: {name: noop}}\n", noop())
		runs, files := map[string]string{}, map[string]string{}
		accounts := []string{"long", acc, "short"}
		run := func(account string) string {
			t.Helper()
			s, err := e.Start(t.Context(), StartRequest{Account: account, Plan: p, Recipe: "test"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := e.Wait(t.Context(), account, s.Run); err != nil {
				t.Fatal(err)
			}
			return s.Run
		}
		for range 3 * retention.RunsStep {
			run("long")
		}
		for _, account := range accounts {
			runs[account] = run(account)
			info, err := blobs.Put(t.Context(), account, strings.NewReader("of "+account), "a.txt", "")
			if err != nil {
				t.Fatal(err)
			}
			files[account] = info.Hash
		}
		check := func(after time.Duration, want ...bool) {
			t.Helper()
			synctest.Wait()
			for i, account := range accounts {
				_, err := e.Head(t.Context(), account, runs[account])
				if (err == nil) != want[i] || err != nil && fault.CodeOf(err) != fault.RunNotFound {
					t.Errorf("after %v: the run of %s: %v", after, account, err)
				}
				if _, err := blobs.Info(t.Context(), account, files[account]); (err == nil) != want[i] {
					t.Errorf("after %v: the file of %s: %v", after, account, err)
				}
			}
		}
		check(0, true, true, true)
		time.Sleep(4 * time.Hour)
		check(4*time.Hour, true, true, false)
		time.Sleep(22 * time.Hour)
		check(26*time.Hour, true, false, false)
		time.Sleep(30 * 24 * time.Hour)
		check(31*24*time.Hour, true, false, false)
	})
}
