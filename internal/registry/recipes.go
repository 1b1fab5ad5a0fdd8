// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
)

// The kinds of the records of registered recipes. A recipe has an id and a name; a version
// of it has what people know of it and, in a record of its own, its text.
const (
	kindRecipe  = "recipe"
	kindVersion = "recipe.version"
	kindSource  = "recipe.source"
)

const (
	// MaxVersions is how many versions a recipe may have.
	MaxVersions = 1000
	// MaxRecipes is how many recipes an account may have (A25).
	MaxRecipes = 10_000
	// maxCompiled bounds the compiled recipes in memory.
	maxCompiled = 1000
	// unversioned is the version of a text that states none.
	unversioned = "0.0.0"
)

// The statuses of a version (X3). A draft is executed with dryRun only (R36).
const (
	StatusActive     = "active"
	StatusDraft      = "draft"
	StatusDeprecated = "deprecated"
)

// A Recipe is a registered recipe: the versions of one name.
type Recipe struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Created int64  `json:"created"` // UTC µs
	By      string `json:"by"`
	Deleted int64  `json:"deleted,omitempty"` // UTC µs; hidden since then
}

// A Version is one version of a registered recipe. Once it has run it never changes, except
// for its status (X27).
type Version struct {
	Recipe      string `json:"recipe"` // its id
	Name        string `json:"name"`
	Version     string `json:"version"` // semver; 0.0.0 = its text states none
	Description string `json:"description,omitempty"`
	Category    string `json:"category,omitempty"`
	Status      string `json:"status"`
	Format      string `json:"format"` // of its text: json or yaml
	Plan        string `json:"plan"`   // hash of the plan it compiled to
	Size        int    `json:"size"`   // of its text, in bytes
	Warnings    int    `json:"warnings,omitempty"`
	Created     int64  `json:"created"`
	Updated     int64  `json:"updated"`
	By          string `json:"by"`
	Ran         bool   `json:"ran,omitempty"`
	Note        string `json:"note,omitempty"` // why it is deprecated
	// Deprecated is since when it is, and Sunset from when on it may be gone; 0 = not known.
	Deprecated int64 `json:"deprecated,omitempty"`
	Sunset     int64 `json:"sunset,omitempty"`
	// Uses is what it uses; nil = it was registered by a release that did not note that.
	Uses     []Use  `json:"uses"`
	Revision uint64 `json:"-"`
}

// ID names the version: the id of its recipe, "@" and the version.
func (v *Version) ID() string { return v.Recipe + "@" + v.Version }

// file names the text in diagnostics. It has no extension, which would say what language the
// text is written in: names of recipes and versions may end in ".json".
func (v *Version) file() string { return v.Name + " (" + v.Version + ")" }

// Records is what Recipes keep their recipes in; see store.Records.
type Records interface {
	Record(ctx context.Context, key store.RecordKey) (store.Record, error)
	RecordNamed(ctx context.Context, account, kind, name string) (store.Record, error)
	Records(ctx context.Context, q store.RecordQuery) (page []store.Record, more bool, err error)
	PutRecords(ctx context.Context, changes ...store.RecordChange) ([]store.Record, error)
}

// Recipes are the recipes that accounts have registered. They are safe for concurrent use.
// This process is the only one that changes them, so what memory has is what is stored.
type Recipes struct {
	cfg    RecipesConfig
	lenses accountLenses

	writing sync.Mutex // one change at a time

	mu       sync.Mutex
	changes  map[string]uint64 // how often the recipes and lenses of an account have changed
	resolved map[reference]*resolution
	ids      map[reference]knownID // by name
	old      oldUses
}

// A knownID is the id of a recipe, as long as the recipes of the account have not changed.
type knownID struct {
	changes uint64
	id      string
}

// RecipesConfig is what Recipes are made of. All fields but Limits and NoRefs are required.
type RecipesConfig struct {
	Records Records
	Now     func() time.Time
	NewID   func() (string, error) // with the prefix "recipe_"
	// Actions returns the actions that the recipes of an account may call (X205).
	Actions func(account string) catalogue.Actions
	// MaxSource is how many bytes a recipe may have.
	MaxSource int64
	// Limits are the defaults and maxima that recipes are compiled with.
	Limits compile.Limits
	// NoRefs refuses steps that name registered recipes.
	NoRefs bool
}

// NewRecipes returns Recipes. It reads nothing yet.
func NewRecipes(cfg RecipesConfig) *Recipes {
	r := &Recipes{cfg: cfg, changes: map[string]uint64{}, resolved: map[reference]*resolution{}, ids: map[reference]knownID{}}
	// A recipe that names a lens without a version is compiled again when the lens has changed.
	r.lenses = newAccountLenses(&cfg, r.changed)
	return r
}

// A reference is a name, an id, or one of both with a range, as an account uses it.
type reference struct{ account, ref string }

// A resolution is what a reference stands for, as long as the recipes of the account have
// not changed.
type resolution struct {
	changes uint64
	Compiled
}

// Compiled is a version that is ready to run.
type Compiled struct {
	Version Version
	Plan    *plan.Plan
	Recipe  *recipe.Recipe
}

// A Draft is the text of a recipe that is checked or registered.
type Draft struct {
	Text []byte
	File string // for diagnostics
	Name string // of a text that has none, where its dialect needs none
	By   string // account or key, for people
	// Version is the one to register the text under; "" = the one that the text states.
	Version string
}

// Check compiles a text for an account. If it cannot run, the error has the diagnostics;
// warnings are returned in any case.
func (r *Recipes) Check(ctx context.Context, account string, d Draft) (*Compiled, []fault.Diagnostic, error) {
	opt := r.options(ctx, account)
	opt.Name = d.Name
	p, rec, _, diags := compile.Source(cmp.Or(d.File, "recipe"), d.Text, opt)
	if p == nil {
		return nil, diags, invalid(diags)
	}
	if d.Version != "" {
		rec.Version = d.Version
	}
	if err := checkNames(rec); err != nil {
		return nil, diags, err
	}
	format := "yaml"
	if json.Valid(bytes.TrimPrefix(d.Text, []byte("\ufeff"))) {
		format = "json"
	}
	return &Compiled{Plan: p, Recipe: rec, Version: Version{
		Name: rec.Name, Version: cmp.Or(rec.Version, unversioned), Description: rec.Description, Category: rec.Category,
		Status: cmp.Or(rec.Status, StatusActive), Format: format, Plan: p.Key(), Size: len(d.Text), Warnings: len(diags), By: d.By, Uses: usesOf(p, rec),
	}}, diags, nil
}

// options are those that recipes of an account are compiled with.
func (r *Recipes) options(ctx context.Context, account string) compile.Options {
	return compile.Options{
		Actions: r.cfg.Actions(account), MaxSource: r.cfg.MaxSource, Limits: r.cfg.Limits, Recipes: &finder{ctx, r, account}, Lenses: r.lenses.Of(ctx, account),
	}
}

// Bounds of what is known of a version without its text, in bytes. Lists have it.
const (
	maxName        = 200
	maxVersion     = 100
	maxCategory    = 200
	maxDescription = 10_000
)

// checkNames refuses what the text of a recipe may say, and a registered one may not.
func checkNames(rec *recipe.Recipe) error {
	for _, at := range []struct {
		what, text string
		most       int
	}{{"name", rec.Name, maxName}, {"version", rec.Version, maxVersion}, {"category", rec.Category, maxCategory}, {"description", rec.Description, maxDescription}} {
		if n := len(at.text); n > at.most {
			return fault.New(fault.RecipeInvalid, "the %s of a registered recipe has at most %d bytes, not %d", at.what, at.most, n)
		}
	}
	switch {
	case rec.Name == "":
		return fault.New(fault.RecipeInvalid, "a registered recipe needs a name")
	case strings.Contains(rec.Name, "@"):
		return fault.New(fault.RecipeInvalid, "the name of a registered recipe has no \"@\", which comes before a version: choose another name than %q", rec.Name)
	}
	return nil
}

// invalid is the error of a recipe with diagnostics; its code is that of the first error.
func invalid(diags []fault.Diagnostic) error {
	for _, d := range diags {
		if d.Severity == fault.SeverityError {
			return fault.Invalid(d.Code, diags)
		}
	}
	return fault.Invalid(fault.RecipeInvalid, diags)
}

// Register adds a version of a recipe, and the recipe if the account has none of that name.
// The same text again is no change: existing is then set. Another text under a version that
// is registered is fault.Conflict.
func (r *Recipes) Register(ctx context.Context, account string, d Draft) (v *Version, existing bool, diags []fault.Diagnostic, err error) {
	c, diags, err := r.Check(ctx, account, d)
	if err != nil {
		return nil, false, diags, err
	}
	r.writing.Lock()
	defer r.writing.Unlock()
	now := r.cfg.Now().UnixMicro()
	had, err := r.named(ctx, account, c.Version.Name)
	if err != nil {
		return nil, false, diags, err
	}
	var changes []store.RecordChange
	if had == nil {
		if err := r.checkQuota(ctx, account); err != nil {
			return nil, false, diags, err
		}
		id, err := r.cfg.NewID()
		if err != nil {
			return nil, false, diags, err
		}
		had = &Recipe{ID: id, Name: c.Version.Name, Created: now, By: d.By}
		change, err := encode(store.RecordKey{Account: account, Kind: kindRecipe, ID: id}, 0, had.Name, had)
		if err != nil {
			return nil, false, diags, err
		}
		changes = append(changes, change)
	}
	c.Version.Recipe, c.Version.Created, c.Version.Updated = had.ID, now, now
	old, err := r.version(ctx, account, c.Version.ID())
	if err != nil {
		return nil, false, diags, err
	}
	if old != nil {
		same, err := r.sameText(ctx, account, old, d.Text)
		if err != nil {
			return nil, false, diags, err
		}
		if !same {
			return nil, false, diags, conflict(old)
		}
		return old, true, diags, nil
	}
	if err := r.checkVersions(ctx, account, had); err != nil {
		return nil, false, diags, err
	}
	if err := r.write(ctx, account, &c.Version, d.Text, changes); err != nil {
		return nil, false, diags, err
	}
	return &c.Version, false, diags, nil
}

// conflict refuses another text under a version that is registered.
func conflict(old *Version) error {
	err := fault.New(fault.Conflict, "version %s of the recipe %q is registered with another content", old.Version, old.Name)
	err.Remedy = "Give the text a new version and register it again."
	if !old.Ran {
		err.Remedy += " A version that never ran can be replaced with PUT."
	}
	return err
}

// checkQuota refuses another recipe of an account that has the most. Deleted ones, which
// have no name, do not count.
func (r *Recipes) checkQuota(ctx context.Context, account string) error {
	n, err := r.count(ctx, store.RecordQuery{Account: account, Kind: kindRecipe, Named: true}, MaxRecipes)
	if err == nil && n >= MaxRecipes {
		return fault.OverQuota("recipes", n, MaxRecipes, "account %s has %d recipes, the most it may have: delete some", account, n)
	}
	return err
}

// checkVersions refuses another version of a recipe that has the most.
func (r *Recipes) checkVersions(ctx context.Context, account string, rec *Recipe) error {
	n, err := r.count(ctx, store.RecordQuery{Account: account, Kind: kindVersion, Prefix: rec.ID + "@"}, MaxVersions)
	if err == nil && n >= MaxVersions {
		return fault.OverQuota("versions", n, MaxVersions, "the recipe %q has %d versions, the most it may have: register the text under another name", rec.Name, n)
	}
	return err
}

// count returns how many records a query selects; it stops at enough.
func (r *Recipes) count(ctx context.Context, q store.RecordQuery, enough int) (n int, err error) {
	q.Limit, q.KeysOnly = 500, true
	for {
		list, more, err := r.cfg.Records.Records(ctx, q)
		if err != nil {
			return 0, err
		}
		if n += len(list); n >= enough || !more {
			return n, nil
		}
		last := &list[len(list)-1]
		if q.After = last.ID; q.ByName() {
			if last.Damage != "" {
				return 0, last.Damaged()
			}
			q.After = last.Name
		}
	}
}

// Replace puts a text in the place of a version that never ran, or adds it as another
// version of the recipe. A version that has run with another content is fault.Conflict.
// revision, unless it is store.AnyRevision, is the one that the version must have; for a
// version that is new, the one of the version that ref stands for.
func (r *Recipes) Replace(ctx context.Context, account, ref string, revision uint64, d Draft) (v *Version, created bool, diags []fault.Diagnostic, err error) {
	known, err := r.Recipe(ctx, account, ref)
	if err != nil {
		return nil, false, nil, err
	}
	d.Name = known.Name
	c, diags, err := r.Check(ctx, account, d)
	if err != nil {
		return nil, false, diags, err
	}
	r.writing.Lock()
	defer r.writing.Unlock()
	rec, err := r.Recipe(ctx, account, ref) // it may have been deleted meanwhile
	if err != nil {
		return nil, false, diags, err
	}
	if c.Version.Name != rec.Name {
		return nil, false, diags, fault.New(fault.InputInvalid, "the recipe is called %q, and the text says %q: a recipe keeps its name", rec.Name, c.Version.Name)
	}
	now := r.cfg.Now().UnixMicro()
	c.Version.Recipe, c.Version.Created, c.Version.Updated = rec.ID, now, now
	old, err := r.version(ctx, account, c.Version.ID())
	if err != nil {
		return nil, false, diags, err
	}
	if err := r.checkRevision(ctx, account, ref, old, revision); err != nil {
		return nil, false, diags, err
	}
	if old == nil {
		err = r.checkVersions(ctx, account, rec)
	} else {
		var same bool
		same, err = r.sameText(ctx, account, old, d.Text)
		switch {
		case err != nil:
		case same:
			return old, false, diags, nil
		case old.Ran:
			err = conflict(old)
		}
		c.Version.Created, c.Version.Revision = old.Created, old.Revision
	}
	if err == nil {
		err = r.write(ctx, account, &c.Version, d.Text, nil)
	}
	if err != nil {
		return nil, false, diags, err
	}
	return &c.Version, old == nil, diags, nil
}

// checkRevision refuses to replace another revision than the one that was read: of old, or
// for a new version of the one that ref stands for.
func (r *Recipes) checkRevision(ctx context.Context, account, ref string, old *Version, revision uint64) (err error) {
	if revision == store.AnyRevision {
		return nil
	}
	if old == nil {
		if old, err = r.Find(ctx, account, ref); err != nil {
			return err
		}
	}
	if revision != old.Revision {
		return fault.New(fault.PreconditionFailed, "version %s of the recipe %q has changed since it was read: its revision is %d", old.Version, old.Name, old.Revision)
	}
	return nil
}

// write stores a version with its text. The caller holds r.writing.
func (r *Recipes) write(ctx context.Context, account string, v *Version, text []byte, more []store.RecordChange) error {
	change, err := encode(store.RecordKey{Account: account, Kind: kindVersion, ID: v.ID()}, v.Revision, "", v)
	if err != nil {
		return err
	}
	changes := append(more, change)
	if text != nil {
		changes = append(changes, store.RecordChange{Record: store.Record{
			RecordKey: store.RecordKey{Account: account, Kind: kindSource, ID: v.ID()}, Revision: store.AnyRevision, Data: text,
		}})
	}
	stored, err := r.cfg.Records.PutRecords(ctx, changes...)
	r.changed(account) // also after an error, which may come after the write
	if err != nil {
		return err
	}
	v.Revision = stored[len(more)].Revision
	return nil
}

// ActionsChanged forgets what the recipes of an account compiled to, because it may call other
// actions now.
func (r *Recipes) ActionsChanged(account string) { r.changed(account) }

// changed forgets what references stood for.
func (r *Recipes) changed(account string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes[account]++
}

func encode(key store.RecordKey, revision uint64, name string, v any) (store.RecordChange, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return store.RecordChange{}, fmt.Errorf("record %s: %w", key.ID, err)
	}
	return store.RecordChange{Record: store.Record{RecordKey: key, Revision: revision, Name: name, Data: data}}, nil
}

func (r *Recipes) sameText(ctx context.Context, account string, v *Version, text []byte) (bool, error) {
	had, err := r.Source(ctx, account, v)
	return string(had) == string(text), err
}

// Source returns the text of a version, as it was registered.
func (r *Recipes) Source(ctx context.Context, account string, v *Version) ([]byte, error) {
	rec, err := r.cfg.Records.Record(ctx, store.RecordKey{Account: account, Kind: kindSource, ID: v.ID()})
	return rec.Data, err
}

// A Standing is what users are told of a version.
type Standing struct {
	Status string // active or deprecated
	Note   string // for people
	// Sunset is from when on a deprecated version may be gone, UTC µs; 0 = not known. It says
	// what its owner intends: the server removes nothing by itself.
	Sunset int64
}

// SetStatus makes a version active or deprecated. A draft becomes active by a text that says
// so.
func (r *Recipes) SetStatus(ctx context.Context, account, ref string, to Standing) (*Version, error) {
	switch {
	case to.Status != StatusActive && to.Status != StatusDeprecated:
		return nil, fault.New(fault.InputInvalid, "a version can be made %s or %s", StatusActive, StatusDeprecated)
	case to.Sunset != 0 && to.Status == StatusActive:
		return nil, fault.New(fault.InputInvalid, "sunset: only a deprecated version has one")
	}
	r.writing.Lock()
	defer r.writing.Unlock()
	v, err := r.Find(ctx, account, ref)
	if err != nil {
		return nil, err
	}
	if v.Status == StatusDraft {
		return nil, fault.New(fault.Conflict, "version %s of the recipe %q is a draft: register its text with another status", v.Version, v.Name)
	}
	if v.Status == to.Status && v.Note == to.Note && v.Sunset == to.Sunset {
		return v, nil
	}
	now := r.cfg.Now().UnixMicro()
	switch {
	case to.Sunset != 0 && to.Sunset != v.Sunset && to.Sunset <= now:
		return nil, fault.New(fault.InputInvalid, "sunset: want a time to come, so that users can act before it")
	case to.Status == StatusActive:
		v.Deprecated = 0
	case v.Status == StatusActive:
		v.Deprecated = now
	}
	v.Status, v.Note, v.Sunset, v.Updated = to.Status, to.Note, to.Sunset, now
	return v, r.write(ctx, account, v, nil, nil)
}

// MarkRan notes that a run of a version starts, so that its text never changes again. It
// returns once that is durable.
func (r *Recipes) MarkRan(ctx context.Context, account string, v *Version) error {
	if v.Ran {
		return nil
	}
	r.writing.Lock()
	defer r.writing.Unlock()
	now, err := r.version(ctx, account, v.ID())
	switch {
	case err != nil:
		return err
	case now == nil || now.Plan != v.Plan:
		return fault.New(fault.Conflict, "version %s of the recipe %q has just been replaced: execute it again", v.Version, v.Name)
	case now.Ran:
		return nil
	}
	now.Ran = true
	return r.write(ctx, account, now, nil, nil)
}

// Delete hides a recipe with all its versions (X189). Its runs go on, and its name is free.
func (r *Recipes) Delete(ctx context.Context, account, ref string) error {
	if strings.Contains(ref, "@") {
		return fault.New(fault.InputInvalid, "a recipe is deleted with all its versions: name it without a version, or deprecate the version")
	}
	r.writing.Lock()
	defer r.writing.Unlock()
	rec, err := r.Recipe(ctx, account, ref)
	if err != nil {
		return err
	}
	now := r.cfg.Now().UnixMicro()
	rec.Deleted = now
	change, err := encode(store.RecordKey{Account: account, Kind: kindRecipe, ID: rec.ID}, store.AnyRevision, "", rec)
	if err != nil {
		return err
	}
	_, err = r.cfg.Records.PutRecords(ctx, change)
	r.changed(account)
	return err
}
