// SPDX-License-Identifier: Apache-2.0

// Package resultcache keeps results of attempts, so that a later attempt with the same action
// and the same input may have one in place of a call.
//
// It decides what two attempts must have in common, how long a result is kept and how many an
// account may have, and when a kept result can no longer be used. It never decides whether a
// step may use one (its recipe does), what such a result costs (package machine does), or
// whether an input or a result fits its contract (package worker does).
//
// A cache may forget: a result that cannot be read or written is as good as none.
package resultcache

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/mutation"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/retention"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/worker"
)

// Kind is the kind of the records of results. The id of one is "action@version/key".
const Kind = "result"

// Records are read by a cache; see store.Records.
type Records interface {
	Record(ctx context.Context, key store.RecordKey) (store.Record, error)
	Records(ctx context.Context, q store.RecordQuery) (page []store.Record, more bool, err error)
}

// Config is what a Cache is made of. Fields without a default are required.
type Config struct {
	Records Records
	// Put changes records, as the owner of the store.
	Put func(ctx context.Context, changes ...store.RecordChange) ([]store.Record, error)
	// Touch makes a file of an account count as just stored; fault.FileNotFound: there is none.
	// Default: no account has files.
	Touch  func(ctx context.Context, account, hash string) error
	Now    func() int64 // UTC µs, never falls
	Logger *slog.Logger // default: discarded

	// MaxResults and MaxBytes bound what is kept for one account. Beyond either, the oldest
	// results are removed. Default 10,000 and 256 MiB.
	MaxResults, MaxBytes int64
}

// A Cache has the results of all accounts. It is safe for concurrent use. This process is the
// only one that changes them.
type Cache struct {
	cfg    Config
	writer writer

	mu   sync.Mutex
	used map[string]*usage // by account; see bound
}

// New returns a cache of what is stored.
func New(cfg Config) *Cache {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Touch == nil {
		cfg.Touch = func(_ context.Context, _, hash string) error {
			return fault.New(fault.FileNotFound, "there is no file %s", hash)
		}
	}
	if cfg.MaxResults == 0 {
		cfg.MaxResults = 10_000
	}
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = 256 << 20
	}
	c := &Cache{cfg: cfg, used: map[string]*usage{}}
	c.writer.put = cfg.Put
	return c
}

// A Step is what a cache must know of an attempt beyond its task.
type Step struct {
	Cache *plan.Cache // how old a result may be
	Key   []byte      // the value of its Key, as canonical JSON; nil = none
	// InputC and OutputC are the step's contracts, in addition to the action's schemas.
	InputC, OutputC []byte
	Files           []journal.File // of the run, under the names that they have in it
	Fresh           bool           // an earlier result is not used
}

// Of returns the earlier results of an attempt. The input of the task is the rendered one, in
// which values in files are references with the hash; it is not read again later.
func (c *Cache) Of(t *worker.Task, s Step) worker.Cache {
	return &attempt{c: c, Step: s, action: t.Action, account: t.Task.Account, run: t.Task.Run, step: t.Task.Step, input: t.Task.Input}
}

// attempt is the worker.Cache of one attempt.
type attempt struct {
	c *Cache
	Step
	action             *action.Action
	account, run, step string
	input              []byte
	hash               string // "" = not computed yet
}

func (a *attempt) ttl() int64 { return a.Cache.TTLMS * 1000 } // µs

// A result is a record as it is stored.
type result struct {
	Run    string          `json:"run"` // that made it
	Step   string          `json:"step"`
	At     int64           `json:"at"`              // UTC µs
	Files  []string        `json:"files,omitempty"` // that it names, and that were there
	Output json.RawMessage `json:"output"`
}

// keyOf returns the hash of all that two attempts must have in common. Fields are
// length-prefixed, so that different lists of fields never give the same bytes.
//
// Versions of an action may give different results, and so may actions of one version that are
// configured in another way (Action.Revision). The schemas are part of it because a result was
// checked against them. Prices are not: they do not change a result.
func (a *attempt) keyOf() string {
	if a.hash != "" {
		return a.hash
	}
	h := sha256.New()
	var n [binary.MaxVarintLen64]byte
	put := func(b []byte) {
		h.Write(n[:binary.PutUvarint(n[:], uint64(len(b)))])
		h.Write(b)
	}
	for _, text := range [...]string{"1", a.owner(), a.action.Name, a.action.Version, a.action.Revision} {
		put([]byte(text))
	}
	for _, b := range [...][]byte{a.input, a.InputC, a.OutputC, a.action.Input, a.action.Output, a.Key} {
		put(b)
	}
	// An action may look at the name and the type of a file, which are those of its run.
	for i := range a.Files {
		if f := &a.Files[i]; bytes.Contains(a.input, []byte(f.Hash)) {
			put([]byte(f.Hash))
			put([]byte(f.Name))
			put([]byte(f.MimeType))
		}
	}
	a.hash = hex.EncodeToString(h.Sum(nil))
	return a.hash
}

// owner is whose results the attempt may use (I17).
func (a *attempt) owner() string {
	if mutation.Cache {
		return "any"
	}
	return a.account
}

func (a *attempt) record() store.RecordKey {
	return store.RecordKey{Account: a.owner(), Kind: Kind, ID: prefix(a.action.Name, a.action.Version) + a.keyOf()}
}

// prefix is the beginning of the ids of the results of an action.
func prefix(name, version string) string { return name + "@" + version + "/" }

// Get implements [worker.Cache].
func (a *attempt) Get(ctx context.Context) *worker.Hit {
	if a.Fresh {
		return nil
	}
	rec, err := a.c.cfg.Records.Record(ctx, a.record())
	if err != nil {
		if !errors.Is(err, fault.RecordNotFound) {
			a.log("read", err)
		}
		return nil
	}
	r, err := store.DecodeRecord[result](&rec)
	if err != nil {
		a.log("read", err)
		return nil
	}
	if a.c.cfg.Now()-r.At >= a.ttl() {
		return nil
	}
	// A file may have been removed since. One that is there counts as just stored, so that it is
	// not removed before the journal names it.
	for _, hash := range r.Files {
		if err := a.c.cfg.Touch(ctx, a.account, hash); err != nil {
			if !errors.Is(err, fault.FileNotFound) {
				a.log("use", err)
			}
			return nil
		}
	}
	return &worker.Hit{Output: r.Output, From: journal.Cached{Key: a.keyOf(), Run: r.Run, Step: r.Step, At: r.At}}
}

// Put implements [worker.Cache].
func (a *attempt) Put(ctx context.Context, output []byte) {
	if len(output) > worker.MaxOutput {
		return // no attempt has such an output
	}
	now := a.c.cfg.Now()
	r := result{Run: a.run, Step: a.step, At: now, Output: output}
	known := true
	retention.EachHash(output, func(hash []byte) {
		switch err := a.c.cfg.Touch(ctx, a.account, string(hash)); {
		case err == nil:
			r.Files = append(r.Files, string(hash))
		case !errors.Is(err, fault.FileNotFound): // otherwise it is no file, and is not one later
			known = false
		}
	})
	if !known {
		return
	}
	data, err := encode(&r)
	if err != nil {
		a.log("keep", err)
		return
	}
	rec := store.Record{RecordKey: a.record(), Revision: store.AnyRevision, Until: now + a.ttl(), Data: data}
	rec.Name = nameOf(now, len(data), a.keyOf())
	if err := a.c.writer.write(ctx, store.RecordChange{Record: rec}); err != nil {
		a.log("keep", err)
		return
	}
	a.c.bound(ctx, a.account, int64(len(data)))
}

// encode encodes a result. Its output keeps its bytes.
func encode(r *result) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(r)
	return b.Bytes(), err
}

func (a *attempt) log(what string, err error) {
	a.c.cfg.Logger.Info(fmt.Sprintf("a cached result could not be %s; the action is called", past[what]), "run", a.run, "step", a.step, "err", err)
}

var past = map[string]string{"read": "read", "use": "used", "keep": "kept"}
