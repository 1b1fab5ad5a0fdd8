// SPDX-License-Identifier: Apache-2.0

// Package lens keeps the prompt templates of accounts.
//
// A lens is a template with the contracts of what it takes and gives; steps name it by its id (X22,
// X25). The package decides how a lens is written in a file, which ids and versions it may have, that
// a version never changes, and which version is the current one. It never renders a template, and it
// does not decide whether the values of a step fit a contract: package compile and the engine do.
package lens

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/spell"
	"github.com/roux-engine/roux/internal/store"
)

// The kinds of the records of lenses. The id of a version is that of its lens, "@" and the version;
// what is known of it and its content are two records, so that lists read no templates.
const (
	kindLens    = "lens"
	kindVersion = "lens.version"
	kindContent = "lens.content"
)

const (
	// MaxLenses is how many lenses an account may have (A25).
	MaxLenses = 10_000
	// MaxVersions is how many versions a lens may have.
	MaxVersions = 1000
)

// A Lens is what is known of a lens in addition to its versions.
type Lens struct {
	ID       string `json:"id"`
	Current  string `json:"current"` // its current version
	Created  int64  `json:"created"` // UTC µs
	Updated  int64  `json:"updated"`
	Revision uint64 `json:"-"`
}

// A Version is one version of a lens, without its content. It never changes.
type Version struct {
	Lens    string `json:"lens"`
	Version string `json:"version"`
	Model   string `json:"model,omitempty"`
	Size    int    `json:"size"` // of its template, in bytes
	Hash    string `json:"hash"` // of model, template and contracts
	Created int64  `json:"created"`
	By      string `json:"by"`
	// Current says whether it is the current one, and Revision is that of its lens.
	Current  bool   `json:"-"`
	Revision uint64 `json:"-"`
}

// key is the id of the records of the version.
func (v *Version) key() string { return v.Lens + "@" + v.Version }

// Records is what Lenses keep their lenses in; see store.Records.
type Records interface {
	Record(ctx context.Context, key store.RecordKey) (store.Record, error)
	Records(ctx context.Context, q store.RecordQuery) (page []store.Record, more bool, err error)
	PutRecords(ctx context.Context, changes ...store.RecordChange) ([]store.Record, error)
}

// Lenses are the lenses of accounts. They are safe for concurrent use.
type Lenses struct {
	cfg     Config
	writing sync.Mutex // one change at a time
}

// Config is what Lenses are made of. All fields are required.
type Config struct {
	Records Records
	Now     func() time.Time
	// Changed is called after the lenses of an account have changed or may have changed, as after a write that failed.
	Changed func(account string)
}

// New returns Lenses. It reads nothing yet.
func New(cfg Config) *Lenses { return &Lenses{cfg: cfg} }

// Put adds a version of a lens, which becomes the current one, and the lens if the account has none of
// that id. If the current version has the same content and d names no other one, or d names one that
// exists with the same content, nothing changes and created is false. Another content under a version
// that exists is fault.Conflict. revision, unless it is store.AnyRevision, is the one that the lens
// must have. by is who puts it, for people.
func (l *Lenses) Put(ctx context.Context, account string, d *Document, revision uint64, by string) (v *Version, created bool, err error) {
	if err := d.Valid(); err != nil {
		return nil, false, err
	}
	content, hash, err := contentOf(d)
	if err != nil {
		return nil, false, err
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	had, err := l.find(ctx, account, d.Lens)
	if err != nil {
		return nil, false, err
	}
	if err := checkRevision(d.Lens, had, revision); err != nil {
		return nil, false, err
	}
	if had == nil {
		err = l.prepare(ctx, account, d.Lens)
	} else {
		v, err = l.known(ctx, account, had, d, hash)
	}
	if err != nil || v != nil {
		return v, false, err
	}
	versions, err := l.keys(ctx, account, d.Lens)
	if err == nil && len(versions) >= MaxVersions {
		err = fault.OverQuota("versions", len(versions), MaxVersions, "the lens %q has %d versions, the most it may have: put it under another id", d.Lens, len(versions))
	}
	if err != nil {
		return nil, false, err
	}
	now := l.cfg.Now().UnixMicro()
	v = &Version{Lens: d.Lens, Version: d.Version, Model: d.Model, Size: len(d.Template), Hash: hash, Created: now, By: by}
	if v.Version == "" {
		v.Version = Next(versions)
	}
	if had == nil {
		had = &Lens{ID: d.Lens, Created: now}
	}
	had.Current, had.Updated = v.Version, now
	if err := l.write(ctx, account, had, v, content); err != nil {
		return nil, false, err
	}
	return v, true, nil
}

// contentOf returns the content of a version as it is kept, and its hash.
func contentOf(d *Document) (content []byte, hash string, err error) {
	c := Document{Model: d.Model, Template: d.Template}
	for _, at := range []struct{ from, to *json.RawMessage }{{&d.Contracts.Input, &c.Contracts.Input}, {&d.Contracts.Output, &c.Contracts.Output}} {
		if *at.from == nil {
			continue
		}
		if *at.to, err = jsonx.CanonicalRaw(*at.from); err != nil {
			return nil, "", fault.Wrap(fault.RecipeInvalid, err, "the contracts cannot be read: %v", err)
		}
	}
	if content, err = json.Marshal(c); err != nil {
		return nil, "", err
	}
	sum := sha256.Sum256(content)
	return content, hex.EncodeToString(sum[:]), nil
}

// checkRevision refuses to change another revision of a lens than the one that was read.
func checkRevision(id string, had *Lens, revision uint64) error {
	switch {
	case revision == store.AnyRevision:
	case had == nil:
		return fault.New(fault.PreconditionFailed, "the lens %q is not there any more", id)
	case had.Revision != revision:
		return fault.New(fault.PreconditionFailed, "the lens %q has changed since it was read: its revision is %d", id, had.Revision)
	}
	return nil
}

// prepare checks that the account may have another lens, and removes what a lens of that id has left:
// a deletion may have been interrupted.
func (l *Lenses) prepare(ctx context.Context, account, id string) error {
	n := 0
	err := store.EachRecord(ctx, l.cfg.Records, store.RecordQuery{Account: account, Kind: kindLens, KeysOnly: true}, func(*store.Record) error {
		n++
		return nil
	})
	if err == nil && n >= MaxLenses {
		err = fault.OverQuota("lenses", n, MaxLenses, "account %s has %d lenses, the most it may have: delete some", account, n)
	}
	if err != nil {
		return err
	}
	return l.sweep(ctx, account, id)
}

// known returns the version that a document repeats, or nil.
func (l *Lenses) known(ctx context.Context, account string, had *Lens, d *Document, hash string) (*Version, error) {
	name := d.Version
	if name == "" {
		name = had.Current
	}
	v, err := l.version(ctx, account, had, name)
	switch {
	case err != nil || v == nil:
		return nil, err
	case v.Hash == hash:
		return v, nil
	case d.Version == "":
		return nil, nil
	}
	e := fault.New(fault.Conflict, "version %s of the lens %q has another content", v.Version, v.Lens)
	e.Remedy = "A version never changes: give the lens another version, or none for the next number."
	return nil, e
}

// Next returns the whole number after the highest one among versions.
func Next(versions []string) string {
	highest := uint64(0)
	for _, v := range versions {
		if !number.MatchString(v) {
			continue
		}
		if n, err := strconv.ParseUint(v, 10, 64); err == nil {
			highest = max(highest, n)
		}
	}
	return strconv.FormatUint(highest+1, 10)
}

// write stores a lens, and unless content is nil a version of it. The caller holds l.writing.
func (l *Lenses) write(ctx context.Context, account string, of *Lens, v *Version, content []byte) error {
	change, err := store.ChangeOf(store.RecordKey{Account: account, Kind: kindLens, ID: of.ID}, "", of.Revision, of)
	if err != nil {
		return err
	}
	changes := []store.RecordChange{change}
	if content != nil {
		if change, err = store.ChangeOf(store.RecordKey{Account: account, Kind: kindVersion, ID: v.key()}, "", 0, v); err != nil {
			return err
		}
		changes = append(changes, change, store.RecordChange{Record: store.Record{
			RecordKey: store.RecordKey{Account: account, Kind: kindContent, ID: v.key()}, Revision: store.AnyRevision, Data: content,
		}})
	}
	stored, err := l.cfg.Records.PutRecords(ctx, changes...)
	l.cfg.Changed(account) // also after an error, which may come after the write
	if err != nil {
		return err
	}
	v.Current, v.Revision = true, stored[0].Revision
	return nil
}

// SetCurrent makes a version the current one. revision is as in Put.
func (l *Lenses) SetCurrent(ctx context.Context, account, id, version string, revision uint64) (*Version, error) {
	l.writing.Lock()
	defer l.writing.Unlock()
	of, err := l.Lens(ctx, account, id)
	if err != nil {
		return nil, err
	}
	if err := checkRevision(id, of, revision); err != nil {
		return nil, err
	}
	v, err := l.version(ctx, account, of, version)
	switch {
	case err != nil:
		return nil, err
	case v == nil:
		return nil, l.noVersion(ctx, account, id, version)
	case v.Current:
		return v, nil
	}
	of.Current, of.Updated = v.Version, l.cfg.Now().UnixMicro()
	if err := l.write(ctx, account, of, v, nil); err != nil {
		return nil, err
	}
	return v, nil
}

// Delete deletes a lens with all its versions, also one that is damaged. Of one that is not there it
// removes what an interrupted deletion has left.
func (l *Lenses) Delete(ctx context.Context, account, id string) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	of, err := l.find(ctx, account, id)
	switch {
	case err != nil && fault.CodeOf(err) != fault.StoreCorrupt:
		return err
	case err == nil && of == nil:
		if idForm.MatchString(id) {
			err = l.sweep(ctx, account, id)
		}
		return cmp.Or(err, l.notFound(ctx, account, id))
	}
	// The lens goes first: what is left of it after an interruption cannot be found.
	_, err = l.cfg.Records.PutRecords(ctx, store.Deletion(store.RecordKey{Account: account, Kind: kindLens, ID: id}))
	l.cfg.Changed(account)
	if err != nil {
		return err
	}
	return l.sweep(ctx, account, id)
}

// sweep removes the versions of a lens.
func (l *Lenses) sweep(ctx context.Context, account, id string) error {
	for _, kind := range []string{kindVersion, kindContent} {
		q := store.RecordQuery{Account: account, Kind: kind, Prefix: id + "@", Limit: 500, KeysOnly: true}
		for {
			list, _, err := l.cfg.Records.Records(ctx, q)
			if err != nil {
				return err
			}
			if len(list) == 0 {
				break
			}
			changes := make([]store.RecordChange, len(list))
			for i := range list {
				changes[i] = store.Deletion(list[i].RecordKey)
			}
			if _, err := l.cfg.Records.PutRecords(ctx, changes...); err != nil {
				return err
			}
		}
	}
	return nil
}

// Lens returns a lens by its id, or fault.LensNotFound.
func (l *Lenses) Lens(ctx context.Context, account, id string) (*Lens, error) {
	of, err := l.find(ctx, account, id)
	if err == nil && of == nil {
		return nil, l.notFound(ctx, account, id)
	}
	return of, err
}

// find returns a lens by its id, or nil.
func (l *Lenses) find(ctx context.Context, account, id string) (*Lens, error) {
	if !idForm.MatchString(id) {
		return nil, nil
	}
	rec, err := l.cfg.Records.Record(ctx, store.RecordKey{Account: account, Kind: kindLens, ID: id})
	switch {
	case fault.CodeOf(err) == fault.RecordNotFound:
		return nil, nil
	case err != nil:
		return nil, err
	}
	of, err := store.DecodeRecord[Lens](&rec)
	if err == nil {
		of.Revision = rec.Revision
	}
	return of, err
}

// version returns a version of a lens, or nil.
func (l *Lenses) version(ctx context.Context, account string, of *Lens, version string) (*Version, error) {
	if !idForm.MatchString(version) {
		return nil, nil
	}
	rec, err := l.cfg.Records.Record(ctx, store.RecordKey{Account: account, Kind: kindVersion, ID: of.ID + "@" + version})
	switch {
	case fault.CodeOf(err) == fault.RecordNotFound:
		return nil, nil
	case err != nil:
		return nil, err
	}
	return decode(&rec, of)
}

func decode(rec *store.Record, of *Lens) (*Version, error) {
	v, err := store.DecodeRecord[Version](rec)
	if err == nil {
		v.Current, v.Revision = v.Version == of.Current, of.Revision
	}
	return v, err
}

// Version returns a version of a lens, or the current one when version is "".
func (l *Lenses) Version(ctx context.Context, account, id, version string) (*Version, error) {
	of, err := l.Lens(ctx, account, id)
	if err != nil {
		return nil, err
	}
	return l.versionOf(ctx, account, of, version)
}

func (l *Lenses) versionOf(ctx context.Context, account string, of *Lens, version string) (*Version, error) {
	version = cmp.Or(version, of.Current)
	v, err := l.version(ctx, account, of, version)
	if err == nil && v == nil {
		err = l.noVersion(ctx, account, of.ID, version)
	}
	return v, err
}

// Get returns a version of a lens, or the current one when version is "", with its content.
func (l *Lenses) Get(ctx context.Context, account, id, version string) (*Version, *Document, error) {
	v, err := l.Version(ctx, account, id, version)
	if err != nil {
		return nil, nil, err
	}
	d, err := l.content(ctx, account, v)
	return v, d, err
}

func (l *Lenses) content(ctx context.Context, account string, v *Version) (*Document, error) {
	rec, err := l.cfg.Records.Record(ctx, store.RecordKey{Account: account, Kind: kindContent, ID: v.key()})
	if fault.CodeOf(err) == fault.RecordNotFound { // deleted since the version was read
		return nil, l.notFound(ctx, account, v.Lens)
	}
	if err != nil {
		return nil, err
	}
	d, err := store.DecodeRecord[Document](&rec)
	if err == nil {
		d.Lens, d.Version = v.Lens, v.Version
	}
	return d, err
}

// Versions returns the versions of a lens, the newest first.
func (l *Lenses) Versions(ctx context.Context, account, id string) (list []*Version, err error) {
	of, err := l.Lens(ctx, account, id)
	if err != nil {
		return nil, err
	}
	q := store.RecordQuery{Account: account, Kind: kindVersion, Prefix: id + "@"}
	err = store.EachRecord(ctx, l.cfg.Records, q, func(rec *store.Record) error {
		v, err := decode(rec, of)
		list = append(list, v)
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list, newestFirst)
	return list, nil
}

func newestFirst(a, b *Version) int {
	if a.Created != b.Created {
		return int(min(max(b.Created-a.Created, -1), 1))
	}
	return catalogue.CompareVersions(b.Version, a.Version)
}

// keys returns the versions that a lens has, in no order that means something.
func (l *Lenses) keys(ctx context.Context, account, id string) (versions []string, err error) {
	q := store.RecordQuery{Account: account, Kind: kindVersion, Prefix: id + "@", KeysOnly: true}
	err = store.EachRecord(ctx, l.cfg.Records, q, func(rec *store.Record) error {
		versions = append(versions, strings.TrimPrefix(rec.ID, id+"@"))
		return nil
	})
	return versions, err
}

// List returns the current version of each lens, in the order of their ids. place is where a page
// begins, and next where the following one does; "" = it was the last.
func (l *Lenses) List(ctx context.Context, account, place string, limit int) (list []*Version, next string, err error) {
	page, more, err := l.cfg.Records.Records(ctx, store.RecordQuery{Account: account, Kind: kindLens, After: place, Limit: limit})
	if err != nil {
		return nil, "", err
	}
	for i := range page {
		// A lens that cannot be read does not hide the others; to get it is an error.
		of, err := store.DecodeRecord[Lens](&page[i])
		if err != nil {
			continue
		}
		of.Revision = page[i].Revision
		v, err := l.version(ctx, account, of, of.Current)
		switch {
		case fault.CodeOf(err) == fault.StoreCorrupt:
		case err != nil:
			return nil, "", err
		case v != nil: // otherwise it has been deleted since the page was read
			list = append(list, v)
		}
	}
	if more {
		next = page[len(page)-1].ID
	}
	return list, next, nil
}

// IDs returns the ids of the lenses of an account, sorted.
func (l *Lenses) IDs(ctx context.Context, account string) (ids []string, err error) {
	q := store.RecordQuery{Account: account, Kind: kindLens, KeysOnly: true}
	err = store.EachRecord(ctx, l.cfg.Records, q, func(rec *store.Record) error {
		ids = append(ids, rec.ID)
		return nil
	})
	return ids, err
}

// notFound is the error for an id that no lens of the account has.
func (l *Lenses) notFound(ctx context.Context, account, id string) error {
	ids, err := l.IDs(ctx, account)
	if err != nil {
		return err
	}
	if near := spell.Nearest(id, ids); near != "" {
		return fault.New(fault.LensNotFound, "there is no lens of that id; did you mean %q?", near)
	}
	return fault.New(fault.LensNotFound, "there is no lens of that id")
}

// noVersion is the error for a version that a lens does not have.
func (l *Lenses) noVersion(ctx context.Context, account, id, version string) error {
	versions, err := l.keys(ctx, account, id)
	if err != nil {
		return err
	}
	return NoVersion(id, version, versions)
}

// shown is how many versions a message names.
const shown = 10

// NoVersion is the error for a version that a lens does not have, which has others.
func NoVersion(id, version string, has []string) error {
	has = slices.SortedFunc(slices.Values(has), func(a, b string) int { return catalogue.CompareVersions(b, a) })
	return fault.New(fault.LensNotFound, "the lens %q has no version %q: it has %s", id, version, strings.Join(has[:min(len(has), shown)], ", "))
}

// Of returns the lenses of an account for a compilation.
func (l *Lenses) Of(ctx context.Context, account string) catalogue.Lenses {
	return &finder{ctx, l, account}
}

// A finder finds the lenses of an account that steps name.
type finder struct {
	ctx     context.Context
	lenses  *Lenses
	account string
}

// Lens implements catalogue.Lenses.
func (f *finder) Lens(id, version string) (*catalogue.Lens, error) {
	of, err := f.lenses.find(f.ctx, f.account, id)
	if err == nil && of == nil {
		err = fault.New(fault.LensNotFound, "there is no lens %q", id) // the compiler names a near one
	}
	if err != nil {
		return nil, err
	}
	v, err := f.lenses.versionOf(f.ctx, f.account, of, version)
	if err != nil {
		return nil, err
	}
	d, err := f.lenses.content(f.ctx, f.account, v)
	if err != nil {
		return nil, err
	}
	return d.Compiled(), nil
}

// Compiled returns the document as compilations have it.
func (d *Document) Compiled() *catalogue.Lens {
	return &catalogue.Lens{ID: d.Lens, Version: d.Version, Template: d.Template, Model: d.Model, Input: d.Contracts.Input, Output: d.Contracts.Output}
}

// LensIDs implements catalogue.Lenses.
func (f *finder) LensIDs() []string {
	ids, err := f.lenses.IDs(f.ctx, f.account)
	if err != nil {
		return nil
	}
	return ids
}

var _ catalogue.Lenses = (*finder)(nil)
