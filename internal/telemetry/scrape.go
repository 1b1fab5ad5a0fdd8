// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/roux-engine/roux/internal/feed"
	"github.com/roux-engine/roux/internal/lease"
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
	m    *metrics
	mu   sync.Mutex
	host *feed.Host // nil = not attached yet
	read time.Time  // when the accounts were read
	accountSums

	loaded, attempts, requests, inputs, lag *prometheus.Desc
	runs, reserved, complete                *prometheus.Desc
	limitUsed, limitWaiting                 *prometheus.Desc
	queueWaiting, queueOldest               *prometheus.Desc
	resultsRefused, webhooksRefused         *prometheus.Desc
	journalBytes, journalRows, walBytes     *prometheus.Desc
}

// accountSums are the sums over all accounts.
type accountSums struct {
	live, queued, held int64
	ok                 bool
}

func newScrape(m *metrics) *scrape {
	describe := func(kind, name, help string, labels []string) *prometheus.Desc {
		m.table = append(m.table, described{name, kind, help, labels})
		return prometheus.NewDesc(name, help, labels, nil)
	}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return describe("gauge", name, help, labels)
	}
	counter := func(name, help, label string) *prometheus.Desc {
		return describe("counter", name, help, []string{label})
	}
	s := &scrape{
		m:               m,
		runs:            desc("roux_runs", "Runs that have not ended: live ones, and queued ones, which wait because their account has enough live ones.", "state"),
		reserved:        desc("recipe_credits_reserved", "Credits that are held for runs."),
		complete:        desc("roux_accounts_complete", "1 if roux_runs and recipe_credits_reserved are known; 0 if there are too many accounts or the store does not answer."),
		loaded:          desc("roux_runs_loaded", "Runs in memory."),
		attempts:        desc("roux_attempts_in_flight", "Attempts under way."),
		requests:        desc("roux_requests_pending", "Requests that wait until they are durable."),
		inputs:          desc("roux_inputs_waiting", "Requests, results and reports that have arrived and are not handled yet."),
		lag:             desc("roux_feed_lag", "Commits of runs that are not delivered to their watchers yet."),
		limitUsed:       desc("roux_limit_slots_in_use", "Slots that attempts hold of the limits that are in use; of a limit with keys, of all keys together.", "of", "name"),
		limitWaiting:    desc("roux_limit_waiting", "Steps that wait at a limit of attempts.", "of", "name"),
		queueWaiting:    desc("roux_queue_waiting", "Tasks of a queue that no remote worker has.", "queue"),
		queueOldest:     desc("roux_queue_oldest_seconds", "How long the first task of a queue has waited for a remote worker.", "queue"),
		resultsRefused:  counter("roux_worker_results_refused_total", "Results of remote workers that were refused: no_lease (it shows none, or an altered one), ended_lease, other_account (of a task of an account that is not that of the key), malformed (the request; it counts once), too_large (the request, or an output for its step), off_schema (an output that the action or its step does not allow).", "reason"),
		webhooksRefused: counter("roux_webhooks_refused_total", "Webhooks that were refused because they are not signed as whoever expects them says, are too old, or nobody expects them: about a job, or for a trigger.", "about"),
		journalBytes:    desc("roux_store_journal_bytes", "Size of the journal, without what was moved into chunks."),
		journalRows:     desc("roux_store_journal_rows", "Rows of the journal."),
		walBytes:        desc("roux_store_wal_bytes", "Size of the database's write-ahead log."),
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
		s.runs, s.reserved, s.complete, s.loaded, s.attempts, s.requests, s.inputs, s.lag, s.limitUsed, s.limitWaiting, s.queueWaiting, s.queueOldest, s.resultsRefused, s.webhooksRefused, s.journalBytes, s.journalRows, s.walBytes,
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
	if s.host.Limits != nil {
		for _, l := range s.host.Limits() {
			gauge(s.limitUsed, int64(l.InUse), l.Of, l.Name)
			gauge(s.limitWaiting, int64(l.Waiting), l.Of, l.Name)
		}
	}
	if s.host.Queues != nil {
		for _, q := range s.host.Queues() {
			gauge(s.queueWaiting, int64(q.Waiting), q.Queue)
			gauge(s.queueOldest, int64(q.Oldest.Seconds()), q.Queue)
		}
	}
	if s.host.Refused != nil {
		s.refused(ch, s.host.Refused())
	}
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

// refused sends how often something from outside was refused.
func (s *scrape) refused(ch chan<- prometheus.Metric, all feed.Refused) {
	send := func(d *prometheus.Desc, n int64, label string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), label)
	}
	for _, c := range all.Results {
		if c.Name == lease.TooLarge.String() {
			c.N += s.m.tooLarge.Load()
		}
		send(s.resultsRefused, c.N, c.Name)
	}
	if len(all.Results) > 0 {
		send(s.resultsRefused, s.m.offSchema.Load(), "off_schema")
	}
	for _, c := range all.Webhooks {
		send(s.webhooksRefused, c.N, c.Name)
	}
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
