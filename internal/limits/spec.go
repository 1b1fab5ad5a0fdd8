// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/slots"
)

// A Spec is what the table `limits` says under a name: a limit of a key, or what to do when a
// provider fails.
type Spec struct {
	// Key is an expression; attempts for which it gives the same text share the limit. "" and
	// null: the limit does not apply.
	Key         string `json:"key"`
	Concurrency int    `json:"concurrency"`
	Rate        string `json:"rate"` // 10/s, 300/m, 5000/h
	// Burst is how many may begin at once. Default: those of a tenth of a second, at least 1.
	Burst           int64       `json:"burst"`
	TokensPerMinute int64       `json:"tokens_per_minute"`
	CreditsPerDay   json.Number `json:"credits_per_day"`
	Priority        string      `json:"priority"` // an expression that gives a number; more comes first

	// Provider is a provider whose failures are handled as Breaker and Retries say; "*" is any
	// that is not named.
	Provider string   `json:"provider"`
	Breaker  *Breaker `json:"breaker"`
	Retries  *Retries `json:"retries"`
}

// A Breaker stops attempts of a provider that fails. In the configuration, false turns it off.
type Breaker struct {
	Off    bool     `json:"-"`
	Share  *float64 `json:"share"`
	Min    *int     `json:"min"`
	Window string   `json:"window"`
	Open   string   `json:"open"`
}

// Retries bounds the retries of a provider. In the configuration, false turns it off.
type Retries struct {
	Off   bool     `json:"-"`
	Share *float64 `json:"share"`
	Floor string   `json:"floor"`
}

// UnmarshalJSON implements json.Unmarshaler.
func (b *Breaker) UnmarshalJSON(raw []byte) error {
	type plain Breaker
	return orOff(raw, &b.Off, (*plain)(b))
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *Retries) UnmarshalJSON(raw []byte) error {
	type plain Retries
	return orOff(raw, &r.Off, (*plain)(r))
}

func orOff(raw []byte, off *bool, v any) error {
	switch string(raw) {
	case "false":
		*off = true
		return nil
	case "true":
		return nil
	}
	return strict(string(raw), v)
}

func strict(text string, v any) error {
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// The bounds of a table.
const (
	maxSpecs       = 50
	maxConcurrency = 1_000_000
	maxBurst       = 1_000_000
	maxRate        = 1_000_000
	maxTokens      = 1_000_000_000_000
	maxCost        = 1_000 // of an expression; see package expr
	maxKey         = 200   // bytes
	maxWindow      = time.Hour
)

var (
	nameForm = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,63}$`)
	rateForm = regexp.MustCompile(`^([0-9]{1,7})/(s|m|h)$`)
)

// Variables are those of the expressions, with what each is.
var Variables = []struct{ Name, What string }{
	{"account", "the account whose run it is"},
	{"action", "the name of the action"},
	{"provider", `the provider that is called, "" if the action has none`},
	{"model", `the model that is called, "" if there is none`},
	{"queue", `the queue of the remote workers, "" if the action is carried out here`},
	{"label", "the labels of the run, a map of texts"},
}

// Parse reads a table of limits by their names, as JSON.
func Parse(text string) (map[string]Spec, error) {
	all := map[string]Spec{}
	if text == "" {
		return all, nil
	}
	if err := strict(text, &all); err != nil {
		return nil, err
	}
	if len(all) > maxSpecs {
		return nil, fmt.Errorf("%d limits: want at most %d", len(all), maxSpecs)
	}
	_, err := New(all)
	return all, err
}

// New returns the limits of a table. The error names the limit and the place.
func New(all map[string]Spec) (*Set, error) {
	if len(all) == 0 {
		return nil, nil
	}
	s := &Set{policies: map[string]slots.Policy{}, byName: map[string]*slots.Rule{}}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		spec := all[name]
		if !nameForm.MatchString(name) {
			return nil, fmt.Errorf("%.70q: want a name of lower-case letters, digits, '-' and '_', with a letter first", name)
		}
		if err := s.add(name, &spec); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return s, nil
}

func (s *Set) add(name string, spec *Spec) error {
	switch {
	case spec.Key == "" && spec.Provider == "":
		return errors.New("want `key`, an expression such as account, or `provider` with `breaker` or `retries`")
	case spec.Key != "" && (spec.Provider != "" || spec.Breaker != nil || spec.Retries != nil):
		return errors.New("`key` goes without `provider`, `breaker` and `retries`, which have a limit of their own")
	case spec.Key == "":
		return s.addPolicy(spec)
	}
	l := &limit{Rule: slots.Rule{Name: name}}
	var err error
	if l.key, err = compile("key", spec.Key); err != nil {
		return err
	}
	if spec.Priority != "" {
		if l.priority, err = compile("priority", spec.Priority); err != nil {
			return err
		}
	}
	if err := l.read(spec); err != nil {
		return err
	}
	for _, p := range []*expr.Program{l.key, l.priority} {
		if p == nil {
			continue
		}
		for _, r := range p.Refs() {
			l.Pauses = l.Pauses || p == l.key && (r.Name == "provider" || r.Name == "model")
			s.called = s.called || r.Name == "provider" || r.Name == "model"
		}
	}
	s.called = s.called || l.Tokens > 0 || l.Credits > 0
	s.jobs = s.jobs || l.Concurrency > 0
	s.limits = append(s.limits, l)
	s.byName[name] = &l.Rule
	return nil
}

// read reads the numbers of a limit.
func (l *limit) read(spec *Spec) error {
	switch {
	case spec.Concurrency < 0 || spec.Concurrency > maxConcurrency:
		return fmt.Errorf("concurrency is %d: want 1 to %d, or nothing", spec.Concurrency, maxConcurrency)
	case spec.TokensPerMinute < 0 || spec.TokensPerMinute > maxTokens:
		return fmt.Errorf("tokens_per_minute is %d: want 1 to %d, or nothing", spec.TokensPerMinute, int64(maxTokens))
	case spec.Burst != 0 && spec.Rate == "":
		return errors.New("burst goes with rate")
	case spec.Burst < 0 || spec.Burst > maxBurst:
		return fmt.Errorf("burst is %d: want 1 to %d, or nothing", spec.Burst, maxBurst)
	}
	l.Concurrency, l.Tokens = spec.Concurrency, spec.TokensPerMinute
	if spec.Rate != "" {
		rate, err := parseRate(spec.Rate)
		if err != nil {
			return fmt.Errorf("rate: %w", err)
		}
		if l.Rate = rate; spec.Burst > 0 {
			l.Rate.Burst = spec.Burst
		}
	}
	if spec.CreditsPerDay != "" {
		amount, err := ledger.ParseAmount(spec.CreditsPerDay.String())
		if err != nil || amount <= 0 {
			return fmt.Errorf("credits_per_day is %.30q: want a number above 0, with at most six digits after the point", spec.CreditsPerDay)
		}
		l.Credits = int64(amount)
	}
	if l.Concurrency == 0 && l.Rate.N == 0 && l.Tokens == 0 && l.Credits == 0 {
		return errors.New("it limits nothing: want concurrency, rate, tokens_per_minute or credits_per_day")
	}
	return nil
}

// parseRate reads a rate such as 10/s.
func parseRate(text string) (slots.Rate, error) {
	m := rateForm.FindStringSubmatch(text)
	if m == nil {
		return slots.Rate{}, fmt.Errorf("%.30q: want a number a second, a minute or an hour, such as 10/s, 300/m or 5000/h", text)
	}
	n, _ := strconv.ParseInt(m[1], 10, 64)
	if n == 0 || n > maxRate {
		return slots.Rate{}, fmt.Errorf("%.30q: want a number from 1 to %d", text, maxRate)
	}
	period := map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}[m[2]].Microseconds()
	return slots.Rate{N: n, Period: period, Burst: max(1, n*100_000/period)}, nil
}

// compile compiles an expression. The error has its place in it.
func compile(what, src string) (*expr.Program, error) {
	p, err := expr.CompileWithin(src, maxCost)
	if err != nil {
		var f *fault.Error
		if errors.As(err, &f) && len(f.Diags) > 0 {
			d := f.Diags[0]
			if d.Pos.Col > 0 {
				return nil, fmt.Errorf("%s: column %d: %s", what, d.Pos.Col, d.Msg)
			}
			return nil, fmt.Errorf("%s: %s", what, d.Msg)
		}
		return nil, fmt.Errorf("%s: %s", what, fault.Message(err))
	}
	for _, r := range p.Refs() {
		known := slices.ContainsFunc(Variables, func(v struct{ Name, What string }) bool { return v.Name == r.Name })
		if !known {
			var names []string
			for _, v := range Variables {
				names = append(names, v.Name)
			}
			return nil, fmt.Errorf("%s: %q is no variable: there are %s", what, r.Name, strings.Join(names, ", "))
		}
	}
	return p, nil
}

func (s *Set) addPolicy(spec *Spec) error {
	if spec.Breaker == nil && spec.Retries == nil {
		return errors.New("`provider` goes with `breaker` or `retries`")
	}
	if spec.Concurrency != 0 || spec.Rate != "" || spec.Burst != 0 || spec.TokensPerMinute != 0 || spec.CreditsPerDay != "" || spec.Priority != "" {
		return errors.New("a limit of a provider has `key`, such as provider == \"main\" ? provider : \"\"")
	}
	if _, twice := s.policies[spec.Provider]; twice {
		return fmt.Errorf("provider %.70q has another limit with breaker or retries: write both into one", spec.Provider)
	}
	p := slots.DefaultPolicy
	if b := spec.Breaker; b != nil {
		if err := b.read(&p); err != nil {
			return fmt.Errorf("breaker: %w", err)
		}
	}
	if r := spec.Retries; r != nil {
		if err := r.read(&p); err != nil {
			return fmt.Errorf("retries: %w", err)
		}
	}
	s.policies[spec.Provider] = p
	return nil
}

func (b *Breaker) read(p *slots.Policy) error {
	if b.Off {
		p.Min = 0
		return nil
	}
	switch {
	case b.Share != nil && (*b.Share <= 0 || *b.Share > 1):
		return fmt.Errorf("share is %g: want more than 0, up to 1", *b.Share)
	case b.Min != nil && (*b.Min < 1 || *b.Min > maxConcurrency):
		return fmt.Errorf("min is %d: want 1 to %d; `breaker: false` has none", *b.Min, maxConcurrency)
	}
	if b.Share != nil {
		p.Share = *b.Share
	}
	if b.Min != nil {
		p.Min = *b.Min
	}
	for _, d := range []struct {
		name, text string
		into       *int64
	}{{"window", b.Window, &p.Window}, {"open", b.Open, &p.Open}} {
		if d.text == "" {
			continue
		}
		v, err := time.ParseDuration(d.text)
		if err != nil || v < time.Second || v > maxWindow {
			return fmt.Errorf("%s is %.30q: want a duration from 1s to 1h", d.name, d.text)
		}
		*d.into = v.Microseconds()
	}
	return nil
}

func (r *Retries) read(p *slots.Policy) error {
	if r.Off {
		p.Floor = slots.Rate{}
		return nil
	}
	if r.Share != nil && (*r.Share < 0 || *r.Share > 10) {
		return fmt.Errorf("share is %g: want 0 to 10", *r.Share)
	}
	if r.Share != nil {
		p.Retries = *r.Share
	}
	if r.Floor != "" {
		rate, err := parseRate(r.Floor)
		if err != nil {
			return fmt.Errorf("floor: %w", err)
		}
		rate.Burst = max(rate.Burst, p.Floor.Burst)
		p.Floor = rate
	}
	return nil
}
