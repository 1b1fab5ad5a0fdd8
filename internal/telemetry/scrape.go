// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/roux-engine/roux/internal/feed"
)

const (
	// accountsEvery is how long what was read of the accounts is shown again: it takes
	// two look-ups an account, and a scrape must not cost what a run costs.
	accountsEvery = 10 * time.Second
	maxAccounts   = 10_000
	maxRead       = 2 * time.Second
)

// scrape reads, when metrics are asked for, what stands in the store and in the engine. It
// is therefore right after a restart, too.
type scrape struct {
	mu   sync.Mutex
	host *feed.Host // nil = not attached yet
	read time.Time  // when the accounts were read
	accountSums

	loaded, attempts, requests, inputs, lag *prometheus.Desc
	runs, reserved, complete                *prometheus.Desc
	journalBytes, journalRows, walBytes     *prometheus.Desc
}

// accountSums are the sums over all accounts.
type accountSums struct {
	live, queued, held int64
	ok                 bool
}

func newScrape(m *metrics) *scrape {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		m.table = append(m.table, described{name, "gauge", help, labels})
		return prometheus.NewDesc(name, help, labels, nil)
	}
	s := &scrape{
		runs:         desc("roux_runs", "Runs that have not ended: live ones, and queued ones, which wait because their account has enough live ones.", "state"),
		reserved:     desc("recipe_credits_reserved", "Credits that are held for runs."),
		complete:     desc("roux_accounts_complete", "1 if roux_runs and recipe_credits_reserved are known; 0 if there are too many accounts or the store does not answer."),
		loaded:       desc("roux_runs_loaded", "Runs in memory."),
		attempts:     desc("roux_attempts_in_flight", "Attempts under way."),
		requests:     desc("roux_requests_pending", "Requests that wait until they are durable."),
		inputs:       desc("roux_inputs_waiting", "Requests, results and reports that have arrived and are not handled yet."),
		lag:          desc("roux_feed_lag", "Commits of runs that are not delivered to their watchers yet."),
		journalBytes: desc("roux_store_journal_bytes", "Size of the journal, without what was moved into chunks."),
		journalRows:  desc("roux_store_journal_rows", "Rows of the journal."),
		walBytes:     desc("roux_store_wal_bytes", "Size of the database's write-ahead log."),
	}
	m.registry.MustRegister(s)
	return s
}

func (s *scrape) attach(host feed.Host) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.host, s.read = &host, time.Time{}
}

// Describe implements prometheus.Collector.
func (s *scrape) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		s.runs, s.reserved, s.complete, s.loaded, s.attempts, s.requests, s.inputs, s.lag, s.journalBytes, s.journalRows, s.walBytes,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (s *scrape) Collect(ch chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gauge := func(d *prometheus.Desc, n int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	if s.host == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), maxRead)
	defer cancel()
	load := s.host.Load()
	gauge(s.loaded, int64(load.Loaded))
	gauge(s.attempts, int64(load.Attempts))
	gauge(s.requests, load.Requests)
	gauge(s.inputs, load.Inputs)
	gauge(s.lag, int64(load.Lag))
	if st, err := s.host.Store.Stats(ctx); err == nil {
		gauge(s.journalBytes, st.JournalBytes)
		gauge(s.journalRows, st.JournalRows)
	}
	gauge(s.walBytes, s.host.LogSize())
	if now := time.Now(); s.read.IsZero() || now.Sub(s.read) > accountsEvery {
		s.accountSums, s.read = readAccounts(ctx, s.host.Store, now), now
	}
	if !s.ok {
		gauge(s.complete, 0)
		return
	}
	gauge(s.complete, 1)
	gauge(s.runs, s.live, "live")
	gauge(s.runs, s.queued, "queued")
	gauge(s.reserved, s.held)
}

// readAccounts reads the sums, or reports that they are not known.
func readAccounts(ctx context.Context, st feed.Accounts, now time.Time) (sums accountSums) {
	accounts, err := st.Accounts(ctx)
	if err != nil || len(accounts) > maxAccounts {
		return accountSums{}
	}
	for _, account := range accounts {
		n, err := st.Unended(ctx, account)
		if err != nil {
			return accountSums{}
		}
		sums.live += int64(n.Live)
		sums.queued += int64(n.Queued)
	}
	metered, err := st.MeteredAccounts(ctx)
	if err != nil || len(metered) > maxAccounts {
		return accountSums{}
	}
	for _, account := range metered {
		a, err := st.Account(ctx, account, now.UnixMicro())
		if err != nil {
			return accountSums{}
		}
		sums.held += a.Balance(now.UnixMicro()).Held
	}
	sums.ok = true
	return sums
}
