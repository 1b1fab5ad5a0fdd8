// SPDX-License-Identifier: Apache-2.0

// Package config turns flags, environment variables and files of configuration
// into settings.
//
// It decides which settings there are, which of several values of one counts,
// which file may set what, and where the data directory is. It shows nothing
// and changes no file.
package config

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/egress"
	"github.com/roux-engine/roux/internal/telemetry"
)

// A Setting is one row of the table of settings. Help, docs/config.md, the
// names of variables and the schema of roux.yaml are made from that table.
type Setting struct {
	Key     string // in roux.yaml; a dot leads into a mapping
	Env     string
	Flag    string // without dashes; "" when there is none
	Default string // as text; in parentheses when it is computed
	What    string
	Want    string // the values it accepts, for messages and the schema
	Enum    []string
	List    bool // a list in roux.yaml, text with commas elsewhere
	Table   bool // a mapping in roux.yaml, JSON elsewhere
	// Personal settings are not read from a project's roux.yaml, because a user
	// who clones a project has not agreed to what they open.
	Personal bool
	// Secret settings are never shown, and are not read from files, which others can read
	// and share.
	Secret bool
	// check reports what is wrong with a value; nil accepts any text. The value
	// of a flag is checked by the flag.
	check func(text string) error
	path  bool // relative to the file that sets it
	// inProject settings are directories. A project's roux.yaml names only some of the project.
	inProject bool
	// ofData settings decide how long a data directory keeps what it holds. A
	// project's roux.yaml sets them for a data directory inside the project only,
	// because another one holds the runs of other projects, too.
	ofData bool
}

const ofProjects = "; a project's `roux.yaml` says it of a data directory in the project only"

// table lists the settings in the order in which they are shown.
var table = []Setting{
	{
		Key: "data", Env: dataVariable, Flag: "data", Default: "(./.roux where it exists, else the user's data directory)",
		What: "data directory: where runs and files are kept; a project's `roux.yaml` may name one below its own directory only", Want: "a directory", path: true,
	},
	{
		Key: "account", Env: "ROUX_ACCOUNT", Flag: "account", Default: Account,
		What: "account whose runs, files and credits commands handle" + ofProjects, Want: "the name of an account", check: access.CheckAccount, ofData: true,
	},
	{
		Key: "server", Env: "ROUX_SERVER", Flag: "server", Default: "(none: the data directory)", Personal: true,
		What: "server whose runs, recipes, files and credits commands handle, in place of those of the data directory", Want: "a URL such as https://roux.example.com", check: checkServer,
	},
	{
		Key: "profile", Env: "ROUX_PROFILE", Flag: "profile", Default: "(that of `roux profiles use`, else none)", Personal: true,
		What: "server and key that `roux profiles set` has kept under this name; none = the data directory", Want: "the name of a profile, or none", check: CheckProfile,
	},
	{
		Key: "key-file", Env: "ROUX_KEY_FILE", Flag: "key-file", Default: "(none)", Personal: true, path: true,
		What: "file with the key for the server, which nobody else may read (mode 0600)", Want: "a file",
	},
	{
		Key: "key", Env: "ROUX_KEY", Default: "(none)", Personal: true, Secret: true,
		What: "key for the server; there is no flag for it, because other users of the machine see command lines", Want: "a key such as `roux keys create` makes, only in the environment",
	},
	{
		Key: "accounts", Env: "ROUX_ACCOUNTS", Default: "(none)", Table: true, check: checkAccounts, ofData: true,
		What: "rules of accounts: `max_credits` is the most that one run may pay, `max_live_runs` how many runs may be live before more are queued (0 is no limit; 100 for accounts that pay), `day` and `keys` are budgets of the account and of named keys, with days that begin in `time_zone`, `low_balance` are levels of the available credits that the feed reports, and a run of an account that is `unmetered` pays nothing, as those of the account local" + ofProjects,
		Want: `a mapping such as {"acme": {"max_credits": 500}}`,
	},
	{
		Key: "prices", Env: "ROUX_PRICES", Default: "(as the actions declare)", Table: true, check: checkPrices, ofData: true,
		What: "prices of actions, in place of what the actions declare; with @ and a version of that version only" + ofProjects,
		Want: `a mapping such as {"compose-text": "0.25"}`,
	},
	{
		Key: "commands", Env: "ROUX_COMMANDS", Default: "(none)", Table: true, check: checkCommands, ofData: true,
		What: "commands that recipes may run as actions, `exec-` and the name: `run` is the program and its arguments, in which `{name}` alone is the value of one of the `parameters`; see docs/commands.md" + ofProjects,
		Want: `a mapping such as {"hello": {"run": ["/bin/echo", "hello"]}}`,
	},
	{
		Key: "commands-trusted", Env: "ROUX_COMMANDS_TRUSTED", Default: "(none)", List: true, Personal: true,
		What: "names of commands of a project's `roux.yaml` that may use the network (`network: true`), read more of the disk (`read`) or run unconfined (`confine: none`); * is all of them",
		Want: "names such as fetch,convert",
	},
	{
		Key: "workers", Env: "ROUX_WORKERS", Default: "(none)", Table: true, check: checkWorkers, ofData: true,
		What: "actions that remote workers carry out, by name: `queue` is the one that workers name, `input` and `output` are JSON Schemas (without both it is an action of Roux's own, carried out elsewhere), `accounts` may call it (default: local, and all for an action of Roux's own), `price` is what a call costs, `slots` how many tasks are under way at once, `lease` (30s) how long a worker may be silent, `labels` what a worker must have, `providers` those to whom it may submit the work as a job, `metadata` what recipes may know of it (types, branch conditions, how long it takes); see docs/workers.md" + ofProjects,
		Want: `a mapping such as {"transcribe": {"queue": "audio", "input": {"type": "object"}, "output": {"type": "object"}}}`,
	},
	{
		Key: "providers", Env: "ROUX_PROVIDERS", Default: "(none)", Table: true, check: checkProviders, ofData: true,
		What: "services with language models, by names of your choice: `kind` is anthropic or openai (any service that speaks its protocol), `url` where its API is, `secret` the name of the account's secret with the key and `key_env` a variable with one for all other accounts, `model` the one for steps that name none, `prices` those of the models in credits for a million tokens of `input`, `output` and `cached`, `max_tokens` (4096) and `max_input_tokens` (200000) the most that a call is charged for, `slots` (64) how many calls it adds to those under way at once, whose sum is one limit for all of them, `stall` (60s) how long it may be silent; and services that carry out jobs: `kind` is replicate, fal, openai-background, or jobs with an `api`, and `slots` (1) how many are under way at once (docs/jobs.md)" + ofProjects,
		Want: `a mapping such as {"main": {"kind": "openai", "key_env": "ROUX_MODEL_KEY", "model": "small", "prices": {"small": {"input": "0.5", "output": "2"}}}}`,
	},
	{
		Key: "limits", Env: "ROUX_LIMITS", Default: "(none)", Table: true, check: checkLimits, ofData: true,
		What: "limits of attempts, by names of your choice: attempts for which the expression `key` (CEL over `account`, `action`, `provider`, `model`, `queue` and `label`) gives the same text share `concurrency` (how many run at once), a `rate` such as 300/m with a `burst`, `tokens_per_minute` and `credits_per_day`, and of an account those come first for which `priority` gives more; or, with `provider` in place of a key, when a `breaker` stops attempts of a provider that fails, and how many `retries` it gets (docs/limits.md)" + ofProjects,
		Want: `a mapping such as {"per-account": {"key": "account", "concurrency": 10, "rate": "300/m"}}`,
	},
	{
		Key: "moderation", Env: "ROUX_MODERATION", Default: "(none)", Table: true, check: checkModeration, ofData: true,
		What: "moderators that steps with `moderation` ask, by names of your choice: `kind` is terms (with lists of `terms` and `patterns`), http (any service, at `url`, that answers with a verdict) or openai (the moderation API of OpenAI, with `model` and `thresholds`), `key_env` a variable with the key that they take, `timeout` (10s) how long a verdict may take; see docs/moderation.md" + ofProjects,
		Want: `a mapping such as {"words": {"kind": "terms", "terms": ["confidential"]}}`,
	},
	{
		Key: "public-url", Env: "ROUX_PUBLIC_URL", Default: "(none)", Personal: true, check: checkServer,
		What: "where services reach this server, for their webhooks; without it they are asked how their jobs stand, and report nothing", Want: "a URL such as https://roux.example.com",
	},
	{
		Key: "output", Env: "ROUX_OUTPUT", Flag: "output", Default: "table",
		What: "form of results", Want: "table, json, jsonl, yaml, name or template={{ … }}",
	},
	{
		Key: "color", Env: "ROUX_COLOR", Default: "auto", What: "colours on a terminal; NO_COLOR, TERM=dumb, CI=1 and --no-color say never",
		Want: "auto or never", Enum: []string{"auto", "never"},
	},
	{
		Key: "time", Env: "ROUX_TIME", Flag: "time", Default: "relative", What: "how times are shown to people",
		Want: "relative or iso", Enum: []string{"relative", "iso"},
	},
	{
		Key: "timeout", Env: "ROUX_TIMEOUT", Flag: "timeout", Default: "0s", What: "how long a command waits, for a run from its start on, before it ends with exit code 8; 0s = as long as it takes",
		Want: "a duration such as 30s",
	},
	{
		Key: "max-source", Env: "ROUX_MAX_SOURCE", Flag: "max-source", Default: "1MiB", What: "largest recipe that is read, up to 16MiB",
		Want: "a size such as 4MiB", check: func(text string) error { return new(Size).Set(text) },
	},
	{
		Key: "recipes", Env: "ROUX_RECIPES", Flag: "recipes", Default: "(./recipes where it exists)",
		What: "directory of the registered recipes, which steps name with `ref`; or a source of them, which docs/registry.md describes, and which `roux serve` registers as well", Want: "a directory, a package or a URL", path: true,
	},
	{
		Key: "enable_pipeline_registry", Env: "ROUX_ENABLE_PIPELINE_REGISTRY", Default: "true",
		What: "whether steps may name registered recipes with `ref`", Want: "true or false", Enum: trueOrFalse,
	},
	{
		Key: "allowed_pipeline_dirs", Env: "ROUX_ALLOWED_PIPELINE_DIRS", Default: "(the directory of the recipe that is run, and what is below it)",
		What: "directories whose files steps may name with `file`, by a path from the recipe that names it or from the project; a path with .. is refused then, and a project's `roux.yaml` names only directories of the project",
		Want: "directories such as ./pipelines,./shared", List: true, path: true, inProject: true, check: checkDirs,
	},
	{
		Key: "nested_workspace_root", Env: "ROUX_NESTED_WORKSPACE_ROOT", Default: "(workspaces in the data directory)",
		What: "directory for the workspaces of child runs; a project's `roux.yaml` names one of the project, for a data directory in it", Want: "a directory", path: true, inProject: true, ofData: true,
	},
	{
		Key: "max_nesting_depth", Env: "ROUX_MAX_NESTING_DEPTH", Default: "(10, and up to 32 with `limits` of a recipe)",
		What: "how many levels deep child runs may nest; a recipe cannot raise what is set here", Want: "a number from 1 to 32", check: number(1, 32),
	},
	{
		Key: "max_total_steps", Env: "ROUX_MAX_TOTAL_STEPS", Default: "(100000, and up to 1000000 with `limits` of a recipe)",
		What: "how many steps a run may begin, with those of its child runs; a recipe cannot raise what is set here", Want: "a number from 1 to 1000000", check: number(1, 1_000_000),
	},
	{
		Key: "pipeline_cache_ttl", Env: "ROUX_PIPELINE_CACHE_TTL", Default: "3600",
		What: "how many seconds recipes that were fetched count as fresh: `roux serve --recipes URL` fetches them again after that time", Want: "a number from 1 to 31536000", check: number(1, 31_536_000),
	},
	{
		Key: "concurrency", Env: "ROUX_CONCURRENCY", Default: "1024", What: "how many attempts may be under way at once",
		Want: "a number from 1 to 1000000", check: number(1, 1_000_000),
	},
	{
		Key: "log.format", Env: "ROUX_LOG_FORMAT", Default: telemetry.LogOff, What: "log on standard error: a line for each step and run that has ended, and for what goes wrong in Roux",
		Want: "off, text or json", Enum: []string{telemetry.LogOff, telemetry.LogText, telemetry.LogJSON},
	},
	{
		Key: "trace.endpoint", Env: "ROUX_TRACE_ENDPOINT", Default: "(none)", What: "collector that gets a trace of each run when it has ended, by OTLP over HTTP",
		Want: "a URL such as http://localhost:4318", Personal: true, check: func(text string) error { _, err := egress.ParseURL(text); return err },
	},
	{
		Key: "metrics.recipes", Env: "ROUX_METRICS_RECIPES", Default: "100", What: "how many recipes, and how many actions, have a value of their own in the labels of metrics; the others share `other`",
		Want: "a number from 1 to 10000", check: number(1, 10_000),
	},
	{
		Key: "metrics.accounts", Env: "ROUX_METRICS_ACCOUNTS", Default: "0", What: "how many accounts have a value of their own in a label of metrics; 0 = there is no such label",
		Want: "a number from 0 to 10000", check: number(0, 10_000),
	},
	{
		Key: "retain.runs", Env: "ROUX_RETAIN_RUNS", Default: "7d", What: "how long a run is kept after it has ended" + ofProjects,
		Want: "a duration of at least 1h, such as 7d, or forever", check: checkRetention, ofData: true,
	},
	{
		Key: "retain.files", Env: "ROUX_RETAIN_FILES", Default: "7d", What: "how long a file is kept after the last run that names it has ended" + ofProjects,
		Want: "a duration of at least 1h, such as 7d, or forever", check: checkRetention, ofData: true,
	},
	{
		Key: "retain.uploads", Env: "ROUX_RETAIN_UPLOADS", Default: "24h", What: "how long a file that no run names is kept after its last use" + ofProjects,
		Want: "a duration of at least 1h, such as 7d, or forever", check: checkRetention, ofData: true,
	},
	{
		Key: "secrets.dir", Env: "ROUX_SECRETS_DIR", Default: "(none)",
		What: "directory with a directory for each account, such as `local`, and in it a file for each secret, which nobody else may read (mode 0600)", Want: "a directory",
		Personal: true, path: true,
	},
	{
		Key: "lint.ignore", Env: "ROUX_LINT_IGNORE", Default: "(none)", What: "rules that `roux lint` ignores in all files, see docs/lint.md", Want: "names such as missing-description,unpinned-model",
		List: true,
	},
	{
		Key: "egress.allow", Env: egress.Variable, Default: "(public addresses only)",
		What: "address ranges that `http` may reach beside public addresses, such as 127.0.0.1/32", Want: "ranges such as 127.0.0.1/32,10.0.0.0/8",
		List: true, Personal: true, check: func(text string) error { _, err := egress.ParseAllow(text); return err },
	},
}

// number returns a check for numbers from low to high.
func number(low, high int) func(string) error {
	return func(text string) error {
		if n, err := strconv.Atoi(text); err != nil || n < low || n > high {
			return fmt.Errorf("want a number from %d to %d", low, high)
		}
		return nil
	}
}

// All returns the table of settings. The caller does not change it.
func All() []Setting { return table }

// Find returns the setting of that key, or nil.
func Find(key string) *Setting {
	for i := range table {
		if table[i].Key == key {
			return &table[i]
		}
	}
	return nil
}

// Keys returns the keys of all settings.
func Keys() (keys []string) {
	for i := range table {
		keys = append(keys, table[i].Key)
	}
	return keys
}

// Valid checks one value of the setting.
func (s *Setting) Valid(text string) error {
	switch {
	case s.Enum != nil && !slices.Contains(s.Enum, text):
		return fmt.Errorf("want %s", s.Want)
	case s.check != nil:
		return s.check(text)
	}
	return nil
}
