// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/egress"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/provider/jobapi"
	"github.com/roux-engine/roux/internal/secrets"
)

// The kinds of services with language models. Those that carry out jobs are JobAPI, and those that
// package jobapi knows.
const (
	Anthropic = "anthropic"
	OpenAI    = "openai" // any service that speaks its protocol of chat completions
)

// Config is what the table `providers` says of a service.
type Config struct {
	Kind string `json:"kind"`
	// URL is where the API is, such as https://api.openai.com/v1. Default: that of the company
	// of the kind.
	URL string `json:"url"`
	// Secret is the name of the secret with the key: that of the account whose run it is. KeyEnv
	// is a variable of the environment with a key for all accounts that do not have the secret.
	// Without both no key is sent.
	Secret string `json:"secret"`
	KeyEnv string `json:"key_env"`
	// Model is the one that a step gets that names none.
	Model string `json:"model"`
	// MaxTokens is the most that an answer may have, and what it may have if a step says
	// nothing. Default 4096. MaxInputTokens is the most that counts of the input. Default 200000.
	// Both with the prices are the most that a call is charged.
	MaxTokens      int64 `json:"max_tokens"`
	MaxInputTokens int64 `json:"max_input_tokens"`
	// Slots is how many calls this service adds to those that may be under way at once, of all
	// services with models together (see Set.Slots). Default 64. Of a service that carries out
	// jobs it is how many are under way at once; default 1 (X138).
	Slots int `json:"slots"`
	// Stall is how long the service may be silent. Default 60s.
	Stall string `json:"stall"`
	// Prices are those of the models that steps may use.
	Prices map[string]ModelPrice `json:"prices"`

	JobConfig
}

// A ModelPrice is what a model costs: credits for a million tokens, as decimal text. Without a
// price of cached tokens they cost as much as others of the input. Job is what a job costs beside
// its tokens, and Second what each second costs that the service says it has taken.
type ModelPrice struct {
	Input  string `json:"input"`
	Output string `json:"output"`
	Cached string `json:"cached"`
	Job    string `json:"job"`
	Second string `json:"second"`
}

// The bounds and defaults of a configuration.
const (
	defaultMaxTokens      = 4096
	defaultMaxInputTokens = 200_000
	mostMaxTokens         = 10_000_000
	defaultSlots          = 64
	mostSlots             = 10_000
	mostJobSlots          = 10_000_000 // a job that waits holds nothing but an entry of an index
	defaultStall          = time.Minute
	mostModels            = 1000
	mostProviders         = 100
)

var (
	nameForm = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,63}$`)
	// envForm are the variables that may hold a key. They hold nothing else: a project's roux.yaml
	// can have them sent to an address of its choice, and ROUX_MASTER_KEY and ROUX_ADMIN_KEY must
	// not be among them.
	envForm = regexp.MustCompile(`^ROUX_(MODEL|PROVIDER)_[A-Z0-9_]{1,100}$`)
)

// Check reports what is wrong with a table of providers.
func Check(all map[string]Config) error {
	if len(all) > mostProviders {
		return fmt.Errorf("%d providers: want at most %d", len(all), mostProviders)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !nameForm.MatchString(name) {
			return fmt.Errorf("%.70q: want a name of lower-case letters, digits, '-' and '_', with a letter first", name)
		}
		if _, err := build(name, all[name]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// build checks a configuration and fills in its defaults.
func build(name string, c Config) (*service, error) {
	s := &service{name: name, Config: c, stall: defaultStall, prices: map[string]price{}}
	switch c.Kind {
	case Anthropic:
		s.URL = or(c.URL, "https://api.anthropic.com")
	case OpenAI:
		s.URL = or(c.URL, "https://api.openai.com/v1")
	default:
		if err := s.readAPI(); err != nil {
			return nil, err
		}
	}
	if s.api == nil && c.JobConfig.given() {
		return nil, fmt.Errorf("kind %s has no jobs, api, webhook_secret_env, description or input_schema", c.Kind)
	}
	u, err := egress.ParseURL(s.URL)
	if err != nil {
		return nil, fmt.Errorf("url: %s", fault.Message(err))
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("url: want an address without a query")
	}
	s.host, s.show = u.Hostname(), egress.Show(&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path})
	if c.Secret != "" {
		if err := secrets.CheckName(c.Secret); err != nil {
			return nil, fmt.Errorf("secret: %s", fault.Message(err))
		}
	}
	if c.KeyEnv != "" && !envForm.MatchString(c.KeyEnv) {
		return nil, fmt.Errorf("key_env: want the name of a variable that begins with ROUX_MODEL_ or ROUX_PROVIDER_, such as ROUX_MODEL_KEY; the key itself is not written into files")
	}
	for _, n := range []struct {
		name      string
		value     *int64
		or, bound int64
	}{{"max_tokens", &s.MaxTokens, defaultMaxTokens, mostMaxTokens}, {"max_input_tokens", &s.MaxInputTokens, defaultMaxInputTokens, mostMaxTokens}} {
		if *n.value < 0 || *n.value > n.bound {
			return nil, fmt.Errorf("%s is %d: want 1 to %d", n.name, *n.value, n.bound)
		}
		if *n.value == 0 {
			*n.value = n.or
		}
	}
	most := mostSlots
	if s.api != nil {
		most = mostJobSlots
	}
	if s.Slots < 0 || s.Slots > most {
		return nil, fmt.Errorf("slots is %d: want 1 to %d", s.Slots, most)
	}
	if s.Slots == 0 && s.api == nil {
		s.Slots = defaultSlots
	}
	s.Slots = max(s.Slots, 1)
	if c.Stall != "" {
		if s.stall, err = time.ParseDuration(c.Stall); err != nil || s.stall < 100*time.Millisecond || s.stall > 10*time.Minute {
			return nil, fmt.Errorf("stall %.20q: want a duration from 100ms to 10m", c.Stall)
		}
	}
	return s, s.readPrices()
}

func (s *service) readPrices() error {
	if len(s.Config.Prices) > mostModels {
		return fmt.Errorf("prices: %d models: want at most %d", len(s.Config.Prices), mostModels)
	}
	for _, model := range slices.Sorted(maps.Keys(s.Config.Prices)) {
		p := s.Config.Prices[model]
		counts, times := s.api == nil || s.api.Counts(), s.api != nil && s.api.Times()
		switch {
		case s.api == nil && p.Second != "":
			return fmt.Errorf("prices: %s: only jobs have the price second", model)
		case p.Second != "" && !times:
			return fmt.Errorf("prices: %s: second: this service does not say how long a job has taken", model)
		case p.Second != "" && s.MaxSeconds == 0:
			return fmt.Errorf("prices: %s: second needs max_seconds, the most that are charged for a job: a run has to know what it may cost", model)
		case counts && (p.Input == "" || p.Output == ""):
			return fmt.Errorf("prices: %s: want input and output, in credits for a million tokens; a model that is free has \"0\"", model)
		case !counts && times && (p.Job == "" && p.Second == "" || p.Input != "" || p.Output != "" || p.Cached != ""):
			return fmt.Errorf("prices: %s: want job, the credits for a job, or second, those for a second of one; this service does not say how many tokens one uses", model)
		case !counts && !times && (p.Job == "" || p.Input != "" || p.Output != "" || p.Cached != ""):
			return fmt.Errorf("prices: %s: want job, the credits for a job; this service does not say how many tokens one uses", model)
		case s.api != nil && !jobapi.CheckModel(model):
			return fmt.Errorf("prices: %.80q: want the name of a model as paths may have it: letters, digits and . _ : @ + - with / between them", model)
		case s.api == nil && p.Job != "":
			return fmt.Errorf("prices: %s: only jobs have the price job", model)
		}
		var read price
		for _, v := range []struct {
			name, text string
			into       *ledger.Amount
		}{
			{"input", or(p.Input, "0"), &read.input}, {"output", or(p.Output, "0"), &read.output},
			{"cached", or(p.Cached, or(p.Input, "0")), &read.cached}, {"job", or(p.Job, "0"), &read.job},
			{"second", or(p.Second, "0"), &read.second},
		} {
			amount, err := ledger.ParseAmount(v.text)
			if err != nil {
				return fmt.Errorf("prices: %s: %s: %s", model, v.name, fault.Message(err))
			}
			*v.into = amount
		}
		s.prices[model] = read
	}
	return nil
}

func or(s, without string) string {
	if s == "" {
		return without
	}
	return s
}
