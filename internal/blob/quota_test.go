// SPDX-License-Identifier: Apache-2.0

package blob

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
)

// A25: however many files come and go at once, those of an account never have more bytes
// than its quota, and what is counted is what is stored.
func TestA25_Quota(t *testing.T) {
	dir := t.TempDir()
	var quota atomic.Int64
	s, err := Open(Config{Dir: dir, Quota: func(account string) int64 {
		if account == "acme" {
			return quota.Load()
		}
		return 0
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	put := func(account, text string) (string, error) {
		info, err := s.Put(t.Context(), account, strings.NewReader(text), "", "")
		return info.Hash, err
	}
	if _, err := put("acme", strings.Repeat("a", 30)); err != nil { // before there is a quota
		t.Fatal(err)
	}
	quota.Store(100)
	var all sync.WaitGroup
	var stored atomic.Int32
	for i := range 40 {
		all.Go(func() {
			hash, err := put("acme", fmt.Sprintf("%010d", i))
			switch {
			case err == nil:
				stored.Add(1)
				if i%8 == 0 {
					if _, err := s.Remove(t.Context(), "acme", hash, time.Now().Add(time.Hour)); err != nil {
						t.Error(err)
					}
					stored.Add(-1)
				}
			case !errors.Is(err, fault.QuotaExceeded):
				t.Error(err)
			}
			if _, err := put("rival", fmt.Sprintf("%010d", i)); err != nil {
				t.Error(err)
			}
			if n, err := s.Usage(t.Context(), "acme"); n > 100 || err != nil {
				t.Errorf("%d bytes, %v", n, err)
			}
		})
	}
	all.Wait()
	counted, err := s.Usage(t.Context(), "acme")
	if err != nil || counted != 30+10*int64(stored.Load()) {
		t.Errorf("%d bytes are counted for %d files, %v", counted, stored.Load(), err)
	}
	again := &usage{}
	if err := again.count(t.Context(), s, "acme"); err != nil || again.bytes != counted {
		t.Errorf("%d bytes are stored, and %d counted, %v", again.bytes, counted, err)
	}
	_, err = put("acme", strings.Repeat("b", 1000))
	var problem *fault.Error
	if !errors.As(err, &problem) || problem.Code != fault.QuotaExceeded || *problem.Quota != (fault.Quota{Name: "storage_bytes", Used: counted, Limit: 100}) {
		t.Errorf("a file that never fits: %v", err)
	}
	quota.Store(0)
	if _, err := put("acme", strings.Repeat("b", 1000)); err != nil {
		t.Errorf("without a quota: %v", err)
	}
	if n, _ := s.Usage(t.Context(), "acme"); n != counted+1000 {
		t.Errorf("%d bytes", n)
	}
}
