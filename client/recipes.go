// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonx"
)

// Recipes are the registered recipes of the account. Where a method takes an id, it is that of
// a recipe or its name, with an exact version or a range after @, such as pdf-report@1.2;
// without one it is the newest active version.
type Recipes struct {
	c    *Client
	name string
}

// Named returns the recipes with a name for a text that has none, such as that of its file: in some dialects
// a text needs none. Create and Check send it.
func (r *Recipes) Named(name string) *Recipes { return &Recipes{r.c, name} }

// A Recipe is a version of a recipe.
type Recipe struct {
	ID          string    `json:"id"` // of the recipe; it stays when versions are added
	Name        string    `json:"name"`
	Version     string    `json:"version"`
	Description string    `json:"description,omitempty"`
	Category    string    `json:"category,omitempty"`
	Status      string    `json:"status"` // draft, active or deprecated
	CreatedAt   time.Time `json:"createdAt"`
	UpdatedAt   time.Time `json:"updatedAt"`
	CreatedBy   string    `json:"createdBy"`          // the account
	HasRun      bool      `json:"hasRun"`             // a version that has run never changes
	Plan        string    `json:"plan"`               // hash of what it compiled to
	Note        string    `json:"note,omitempty"`     // why it is deprecated
	Warnings    int       `json:"warnings,omitempty"` // how many
	Revision    uint64    `json:"revision"`           // changes with the version; see Replace
	// SunsetAt is from when on a deprecated version may be gone; nil = nobody has said.
	SunsetAt *time.Time `json:"sunsetAt,omitempty"`
	// Document is the whole recipe, with its steps. Only Get sets it.
	Document json.RawMessage `json:"-"`
}

// RecipeQuery selects recipes. Fields left zero do not restrict.
type RecipeQuery struct {
	Status   string // of the newest version: draft, active or deprecated
	Category string
	Text     string // in name, description or category
}

// recipeType is the media type of the text of a recipe. JSON is YAML, too: the server sees
// from the text which it is.
const recipeType = "application/yaml"

// Create registers a recipe, or another version of one; text is JSON or YAML. created is false
// when the same text was registered before. Another text under a version that is registered
// is fault.Conflict.
func (r *Recipes) Create(ctx context.Context, text []byte) (v *Recipe, created bool, err error) {
	v = new(Recipe)
	a, err := r.c.do(ctx, at(http.MethodPost, "v1", "recipes").with("name", r.name).text(text, recipeType), v)
	if err != nil {
		return nil, false, err
	}
	return v, a.status == http.StatusCreated, nil
}

// Replace replaces a version that never ran, or adds a version; the name stays. created is
// true when the version is new. revision is that of the version as it was read, and 0 replaces
// any: if it has changed since, the error is fault.PreconditionFailed.
func (r *Recipes) Replace(ctx context.Context, id string, text []byte, revision uint64) (v *Recipe, created bool, err error) {
	cl := at(http.MethodPut, "v1", "recipes", id).text(text, recipeType)
	if revision != 0 {
		cl.set("If-Match", `"`+strconv.FormatUint(revision, 10)+`"`).once = true
	}
	v = new(Recipe)
	a, err := r.c.do(ctx, cl, v)
	if err != nil {
		return nil, false, err
	}
	return v, a.status == http.StatusCreated, nil
}

// List returns the recipes, the newest first: of each its newest version.
func (r *Recipes) List(ctx context.Context, q RecipeQuery) iter.Seq2[Recipe, error] {
	return list[Recipe](ctx, r.c, func() *call {
		return at(http.MethodGet, "v1", "recipes").with("status", q.Status).with("category", q.Category).with("q", q.Text)
	})
}

// Get returns a version with its document.
func (r *Recipes) Get(ctx context.Context, id string) (*Recipe, error) {
	a, err := r.c.do(ctx, at(http.MethodGet, "v1", "recipes", id), nil)
	if err != nil {
		return nil, err
	}
	v := &Recipe{Document: a.body}
	if err := json.Unmarshal(a.body, v); err != nil {
		return nil, fault.Wrap(fault.InternalError, err, "the recipe cannot be read: %v", err)
	}
	return v, nil
}

// Versions returns the versions of a recipe, the newest first.
func (r *Recipes) Versions(ctx context.Context, id string) iter.Seq2[Recipe, error] {
	return list[Recipe](ctx, r.c, func() *call { return at(http.MethodGet, "v1", "recipes", id, "versions") })
}

// Source returns the text of a version as it was registered.
func (r *Recipes) Source(ctx context.Context, id string) ([]byte, error) {
	a, err := r.c.do(ctx, at(http.MethodGet, "v1", "recipes", id, "source"), nil)
	if err != nil {
		return nil, err
	}
	return a.body, nil
}

// A RecipeDiff says how the text of one version differs from that of another.
type RecipeDiff struct {
	From    string `json:"from"`
	To      string `json:"to"`
	Same    bool   `json:"same"`    // both compile to the same plan
	Unified string `json:"unified"` // the lines that differ, as diff -u shows them
}

// Diff compares a version with another one of the same recipe, from which the lines go.
func (r *Recipes) Diff(ctx context.Context, id, from string) (*RecipeDiff, error) {
	d := new(RecipeDiff)
	_, err := r.c.do(ctx, at(http.MethodGet, "v1", "recipes", id, "diff").with("with", from), d)
	return result(d, err)
}

// A Deprecation says why a version should not be used, for people, and from when on it may be
// gone. Nothing happens by itself then.
type Deprecation struct {
	Note   string     `json:"note,omitempty"`
	Sunset *time.Time `json:"sunset,omitempty"`
}

// Deprecate marks a version as one that should not be used; starts of it get a warning.
func (r *Recipes) Deprecate(ctx context.Context, id string, why Deprecation) (*Recipe, error) {
	return r.setStatus(ctx, id, "deprecated", why)
}

// Activate takes Deprecate back.
func (r *Recipes) Activate(ctx context.Context, id string) (*Recipe, error) {
	return r.setStatus(ctx, id, "active", Deprecation{})
}

func (r *Recipes) setStatus(ctx context.Context, id, status string, why Deprecation) (*Recipe, error) {
	cl, err := at(http.MethodPost, "v1", "recipes", id, "deprecate").send(struct {
		Status string `json:"status"`
		Deprecation
	}{status, why})
	if err != nil {
		return nil, err
	}
	v := new(Recipe)
	_, err = r.c.do(ctx, cl, v)
	return result(v, err)
}

// Delete deletes a recipe with all its versions. Its runs go on, and its name is free.
func (r *Recipes) Delete(ctx context.Context, id string) error {
	_, err := r.c.do(ctx, at(http.MethodDelete, "v1", "recipes", id), nil)
	return err
}

// A Validation is what is wrong in a recipe.
type Validation struct {
	Valid       bool           `json:"valid"`
	Name        string         `json:"name,omitempty"`
	Version     string         `json:"version,omitempty"`
	Plan        string         `json:"plan,omitempty"` // hash of what it compiles to
	Steps       int            `json:"steps,omitempty"`
	Diagnostics []ProblemError `json:"diagnostics"`
}

// Check validates the text of a recipe without registering it.
func (r *Recipes) Check(ctx context.Context, text []byte) (*Validation, error) {
	v := new(Validation)
	_, err := r.c.do(ctx, at(http.MethodPost, "v1", "recipes", "validate").with("name", r.name).text(text, recipeType), v)
	return result(v, err)
}

// Validate validates a registered version, as the actions and recipes that it calls are now.
func (r *Recipes) Validate(ctx context.Context, id string) (*Validation, error) {
	v := new(Validation)
	_, err := r.c.do(ctx, at(http.MethodPost, "v1", "recipes", id, "validate"), v)
	return result(v, err)
}

// An ExecuteRequest starts a run. Fields left zero take the default that their comment names.
type ExecuteRequest struct {
	FileHashes []string `json:"fileHashes,omitempty"` // of files of the account
	// Parameters are the input of the recipe: what becomes a JSON object.
	Parameters any `json:"parameters,omitempty"`
	// MaxCredits is the most that the run may pay, if recipe and account do not allow less.
	MaxCredits int64             `json:"maxCredits,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"` // names and values to find the run by
	// NoCache uses no earlier results of actions, also in steps that may.
	NoCache bool `json:"noCache,omitempty"`
	// DryRun checks everything, estimates, and starts nothing.
	DryRun bool `json:"dryRun,omitempty"`
	// Key lets at most one run with it be active in the account. While there is one, IfActive
	// says what becomes of the request: skip (the default) is answered with that run, queue starts
	// the run when that one has ended, cancelPrevious cancels that one first.
	Key      string `json:"key,omitempty"`
	IfActive string `json:"ifActive,omitempty"`
	// Debounce, such as 30s, starts the run when no other request with Key and Debounce has come
	// for so long; the last one counts.
	Debounce string `json:"debounce,omitempty"`

	// Wait is how long the server waits for the end of the run before it answers, in whole
	// seconds, at most 60. Default: not at all; see also [Runs.Wait].
	Wait time.Duration `json:"-"`
	// IdempotencyKey names the start: a second one with the same key is answered with the run
	// of the first. Default: a random one for each call of Execute.
	IdempotencyKey string `json:"-"`
	// DeriveKey makes IdempotencyKey with [DerivedKey], so that the same recipe with the same
	// inputs is run once, by whoever asks for it (X103).
	DeriveKey bool `json:"-"`
}

// DerivedKey returns the idempotency key of a start that follows from what is started (X103):
// the SHA-256 of the recipe as it is named, followed by its inputs in canonical JSON (RFC 8785),
// which are an object with fileHashes and parameters.
func DerivedKey(recipe string, req *ExecuteRequest) (string, error) {
	return derivedKey(recipe, map[string]any{"fileHashes": append([]string{}, req.FileHashes...), "parameters": orEmpty(req.Parameters)})
}

// derivedKey returns the SHA-256 of a name followed by a value in canonical JSON.
func derivedKey(name string, v any) (string, error) {
	inputs, err := json.Marshal(v)
	if err == nil {
		inputs, err = jsonx.CanonicalRaw(inputs)
	}
	if err != nil {
		return "", fault.Wrap(fault.Usage, err, "the inputs cannot be written as JSON: %v", err)
	}
	sum := sha256.Sum256(slices.Concat([]byte(name), inputs))
	return hex.EncodeToString(sum[:]), nil
}

func orEmpty(parameters any) any {
	if parameters == nil {
		return map[string]any{}
	}
	return parameters
}

// A Started is a run that has been accepted, and is durable.
type Started struct {
	ID                string          `json:"executionId"`       // "" with DryRun, and if Outcome is queued
	Outcome           string          `json:"outcome,omitempty"` // with Key: started, active or queued
	Status            string          `json:"status"`
	State             string          `json:"state"`
	CreditsReserved   int64           `json:"creditsReserved"`
	EstimatedDuration string          `json:"estimatedDuration,omitempty"` // ISO 8601, such as PT2M30S
	ProgressURL       string          `json:"progressUrl"`
	EventsURL         string          `json:"eventsUrl"`
	CancelURL         string          `json:"cancelUrl"`
	Warnings          []string        `json:"warnings,omitempty"`
	Estimate          *EstimateDetail `json:"estimate,omitempty"`  // with DryRun
	Run               *Run            `json:"execution,omitempty"` // the run, if it has ended while the request waited
	Existing          bool            `json:"-"`                   // an earlier start with the same key began it
}

// Execute starts a run of a recipe.
func (r *Recipes) Execute(ctx context.Context, id string, req ExecuteRequest) (*Started, error) {
	return r.c.execute(ctx, at(http.MethodPost, "v1", "recipes", id, "execute"), id, req)
}

// execute sends the request that starts a run of what id names.
func (c *Client) execute(ctx context.Context, cl *call, id string, req ExecuteRequest) (*Started, error) {
	cl, err := cl.send(req)
	if err != nil {
		return nil, err
	}
	if req.DeriveKey && req.IdempotencyKey == "" {
		if req.IdempotencyKey, err = DerivedKey(id, &req); err != nil {
			return nil, err
		}
	}
	cl.set("Idempotency-Key", req.IdempotencyKey)
	if seconds := int64(req.Wait / time.Second); seconds > 0 {
		cl.set("Prefer", "wait="+strconv.FormatInt(min(seconds, 60), 10))
	}
	s := new(Started)
	a, err := c.do(ctx, cl, s)
	if err != nil {
		return nil, err
	}
	s.Existing = strings.EqualFold(a.header.Get("Idempotent-Replayed"), "true")
	return s, nil
}

// An Estimate is what a run may cost and how long it may take. Durations are ISO 8601.
type Estimate struct {
	EstimatedCredits  int64           `json:"estimatedCredits"`
	CreditsReserved   int64           `json:"creditsReserved"` // what a start would hold
	MinCredits        int64           `json:"minCredits"`
	MaxCredits        int64           `json:"maxCredits,omitempty"` // the most that the run can pay
	EstimatedDuration string          `json:"estimatedDuration,omitempty"`
	MinDuration       string          `json:"minDuration,omitempty"`
	MaxDuration       string          `json:"maxDuration,omitempty"`
	BalanceAfter      *int64          `json:"balanceAfter,omitempty"` // negative = the start would be refused; nil = the account does not pay
	Detail            *EstimateDetail `json:"detail"`
}

// An EstimateDetail says how an estimate was made.
type EstimateDetail struct {
	Strategy string         `json:"strategy,omitempty"`
	Min      int64          `json:"min"`
	Max      int64          `json:"max"`
	Open     []string       `json:"open,omitempty"` // parts without a known bound, each counted once
	Formula  string         `json:"formula,omitempty"`
	Expanded string         `json:"expanded,omitempty"` // the formula with values in place of names
	Values   map[string]any `json:"values,omitempty"`
	Missing  []string       `json:"missing,omitempty"` // names without a value yet
	Problem  string         `json:"problem,omitempty"` // why the formula has no result
	Expected int64          `json:"expected"`
	Cap      int64          `json:"cap,omitempty"`
	Reserved int64          `json:"reserved"`
	Policy   string         `json:"policy"` // what is paid for a run that fails
	MinMS    int64          `json:"minDurationMs"`
	MaxMS    int64          `json:"maxDurationMs"`
}

// Estimate returns what a run may cost.
func (r *Recipes) Estimate(ctx context.Context, id string, req ExecuteRequest) (*Estimate, error) {
	cl, err := at(http.MethodPost, "v1", "recipes", id, "estimate").send(req)
	if err != nil {
		return nil, err
	}
	e := new(Estimate)
	_, err = r.c.do(ctx, cl, e)
	return result(e, err)
}

// result returns v, or nil with an error.
func result[T any](v *T, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	return v, nil
}

// A RecipeUse is something that a version of a recipe uses.
type RecipeUse struct {
	Kind    string `json:"kind"`              // recipe, lens or action
	Name    string `json:"name"`              // as a step has it
	Version string `json:"version,omitempty"` // or a range; "" = the newest
}

// A RecipeUser is a version whose steps run a recipe.
type RecipeUser struct {
	ID      string `json:"id"` // of the recipe
	Name    string `json:"name"`
	Version string `json:"version"`
	Status  string `json:"status"` // draft, active or deprecated
	Ref     string `json:"ref"`    // how its step names the recipe
}

// RecipeDependencies are what a version of a recipe uses, and what uses it.
type RecipeDependencies struct {
	ID      string       `json:"id"` // of the recipe
	Name    string       `json:"name"`
	Version string       `json:"version"`
	Uses    []RecipeUse  `json:"uses"`
	UsedBy  []RecipeUser `json:"usedBy"`
	More    bool         `json:"more,omitempty"` // UsedBy has only some of them
}

// Dependencies returns what a version uses, and which versions run the recipe: with a version
// or a range in the id, those that may run that version. A small binary does not tell.
func (r *Recipes) Dependencies(ctx context.Context, id string) (*RecipeDependencies, error) {
	v := new(RecipeDependencies)
	_, err := r.c.do(ctx, at(http.MethodGet, "v1", "recipes", id, "dependencies"), v)
	return result(v, err)
}
