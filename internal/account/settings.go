// SPDX-License-Identifier: Apache-2.0

package account

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/retention"
)

// Settings are what the operator has set for an account while the server runs. A field that
// is nil leaves to the account what the configuration says of it.
type Settings struct {
	Description *string `json:"description,omitempty" maxLength:"500" doc:"For people."`
	// Disabled accounts make no requests, and start no runs. Runs in progress go on.
	Disabled *bool   `json:"disabled,omitempty" doc:"Refuse every request of the account with 403. Runs in progress go on."`
	Reason   *string `json:"disabledReason,omitempty" maxLength:"500" doc:"What its requests are told."`

	Metered       *bool      `json:"metered,omitempty" doc:"Whether the account pays for its runs. It cannot be changed while runs have not ended."`
	MaxCredits    *int64     `json:"maxCredits,omitempty" minimum:"1" maximum:"9007199254740991" doc:"The most that one run may reserve and pay (X157)."`
	Day           *DayBudget `json:"dayBudget,omitempty" doc:"What the account may spend in a day of its time zone."`
	TimeZone      *string    `json:"timeZone,omitempty" maxLength:"60" doc:"Where its days begin. Default UTC." example:"Europe/Berlin"`
	LowBalance    []int64    `json:"lowBalance,omitempty" maxItems:"20" doc:"Levels of the available credits that are reported in the feed."`
	LiveRuns      *int       `json:"liveRunLimit,omitempty" minimum:"0" maximum:"100000" doc:"Runs that may be live at once; ten times as many may exist, the rest of them queued (X206). 0 = no limit."`
	Rate          *float64   `json:"requestsPerSecond,omitempty" minimum:"0.01" maximum:"100000"`
	Burst         *int       `json:"requestBurst,omitempty" minimum:"1" maximum:"1000000" doc:"Requests that may come at once."`
	Storage       *int64     `json:"storageBytes,omitempty" minimum:"0" maximum:"9007199254740991" doc:"Bytes of all files of the account. 0 = no limit."`
	Actions       []string   `json:"actions,omitzero" required:"false" maxItems:"200" nullable:"false" doc:"Names of the actions that its recipes may call, where * stands for any characters (X205). Absent = all, an empty list = none." example:"[\"file-*\",\"http\"]"`
	RetainRuns    *string    `json:"retainRuns,omitempty" maxLength:"40" doc:"How long runs are kept after their end, such as 30d, or forever."`
	RetainFiles   *string    `json:"retainFiles,omitempty" maxLength:"40" doc:"How long a file is kept after the end of the last run that names it."`
	RetainUploads *string    `json:"retainUploads,omitempty" maxLength:"40" doc:"How long a file is kept that no run names."`
}

// A DayBudget limits what is spent in a day.
type DayBudget struct {
	Credits int64  `json:"credits" minimum:"1" maximum:"9007199254740991"`
	Mode    string `json:"mode,omitempty" enum:"enforce,audit" default:"enforce" doc:"audit reports and refuses nothing."`
}

// resolved are settings that were checked.
type resolved struct {
	Settings
	zone   *time.Location
	retain retention.Policy // zero fields = as configured
}

// resolve checks settings.
func (s *Settings) resolve() (*resolved, error) {
	r := &resolved{Settings: *s}
	wrong := func(field, format string, args ...any) (*resolved, error) {
		return nil, fault.New(fault.RequestInvalid, "%s: %s", field, fmt.Sprintf(format, args...))
	}
	if s.TimeZone != nil && *s.TimeZone != "" {
		zone, err := time.LoadLocation(*s.TimeZone)
		if err != nil || *s.TimeZone == "Local" {
			return wrong("timeZone", "want a name such as Europe/Berlin")
		}
		r.zone = zone
	}
	for _, n := range s.LowBalance {
		if n < 1 || n > ledger.MaxAmount {
			return wrong("lowBalance", "a level is %d: want 1 to %d", n, int64(ledger.MaxAmount))
		}
	}
	for _, pattern := range s.Actions {
		if pattern == "" || len(pattern) > 64 || strings.Trim(pattern, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.*") != "" {
			return wrong("actions", "want names of actions of letters, digits, '-', '_' and '.', in which * stands for any characters")
		}
	}
	for _, at := range []struct {
		field string
		text  *string
		into  *time.Duration
	}{{"retainRuns", s.RetainRuns, &r.retain.Runs}, {"retainFiles", s.RetainFiles, &r.retain.Files}, {"retainUploads", s.RetainUploads, &r.retain.Uploads}} {
		if at.text == nil {
			continue
		}
		d, err := retention.Parse(*at.text)
		if err != nil {
			return wrong(at.field, "%v", err)
		}
		*at.into = d
	}
	return r, nil
}

// noLimit is a limit of live runs that none reaches. Runs of an account without a limit are
// counted all the same, so that it can get one while they go on.
const noLimit = 100_000_000

// rules puts the settings in the place of what the configuration says.
func (r *resolved) rules(rules engine.AccountRules) engine.AccountRules {
	if r.Metered != nil {
		rules.Unmetered = !*r.Metered
	}
	if r.MaxCredits != nil {
		rules.MaxCredits = *r.MaxCredits
	}
	if r.Day != nil {
		rules.Budgets.Day = ledger.Budget{Limit: r.Day.Credits, Audit: r.Day.Mode == "audit"}
	}
	if r.zone != nil {
		rules.Budgets.Zone = r.zone
	}
	if r.LowBalance != nil {
		rules.LowBalance = r.LowBalance
	}
	if r.LiveRuns != nil {
		rules.MaxLiveRuns = *r.LiveRuns
		if rules.MaxLiveRuns == 0 {
			rules.MaxLiveRuns = -1
		}
	}
	return rules
}

// disabled reports whether the account makes no requests.
func (r *resolved) disabled() bool { return r.Disabled != nil && *r.Disabled }

// allows reports whether a recipe of the account may call an action.
func (r *resolved) allows(action string) bool {
	return r.Actions == nil || slices.ContainsFunc(r.Actions, func(pattern string) bool {
		ok, _ := path.Match(pattern, action) // a pattern has no character that is special there but *
		return ok
	})
}
