// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/roux-engine/roux/fault"
)

// MaxScan is how many heads one Search reads at most, however few of them it selects.
const MaxScan = 2_000

// The bounds of the labels of a run.
const (
	MaxLabels    = 64
	MaxLabelKey  = 128   // bytes
	MaxLabelText = 1_024 // bytes of a value
)

// EncodeLabels returns the labels of a run as Head.Labels has them. fault.InputInvalid
// means that they exceed a bound.
func EncodeLabels(labels map[string]string) (string, error) {
	if len(labels) > MaxLabels {
		return "", fault.New(fault.InputInvalid, "%d labels are too many: want at most %d", len(labels), MaxLabels)
	}
	for key, value := range labels {
		switch {
		case key == "" || len(key) > MaxLabelKey:
			return "", fault.New(fault.InputInvalid, "label %q: want a name of 1 to %d bytes", key, MaxLabelKey)
		case !utf8.ValidString(key) || !utf8.ValidString(value):
			return "", fault.New(fault.InputInvalid, "label %q: it is not UTF-8", key)
		case len(value) > MaxLabelText:
			return "", fault.New(fault.InputInvalid, "label %q: its value has %d bytes, want at most %d", key, len(value), MaxLabelText)
		}
	}
	if len(labels) == 0 {
		return "", nil
	}
	text, err := json.Marshal(labels) // sorted by key
	return string(text), err
}

// LabelsOf returns the labels of a head; nil = it has none.
func (h *Head) LabelsOf() (labels map[string]string) {
	if h.Labels != "" && json.Unmarshal([]byte(h.Labels), &labels) != nil {
		return nil // no head that was encoded by EncodeLabels
	}
	return labels
}

// Roots reports whether the query selects among all root runs.
func (q *Query) Roots() bool { return q.Parent == "" && q.Root == "" && !q.All }

// Match reports whether a query selects a head by the fields that say nothing of its
// place: all but Account, Parent, Root, All, Prefix, After and Limit. Of a damaged head
// they may be wrong, so it is selected.
func (q *Query) Match(h *Head) bool {
	if h.Damage != "" {
		return true
	}
	switch {
	case q.Roots() && (h.Deleted != 0) != q.Deleted,
		q.Status != "" && q.Status != h.Status,
		len(q.Statuses) > 0 && !slices.Contains(q.Statuses, h.Status),
		q.Recipe != "" && q.Recipe != h.Recipe,
		h.Created < q.Since,
		q.CreatedBefore != 0 && h.Created >= q.CreatedBefore:
		return false
	}
	if len(q.Labels) == 0 && q.Text == "" {
		return true
	}
	labels := h.LabelsOf()
	for key, value := range q.Labels {
		if has, ok := labels[key]; !ok || has != value {
			return false
		}
	}
	return q.Text == "" || h.contains(q.Text, labels)
}

// contains reports whether a text is part of one that people look for a run by.
func (h *Head) contains(text string, labels map[string]string) bool {
	text = strings.ToLower(text)
	for _, s := range [...]string{h.Recipe, h.Run, h.Message, string(h.Code)} {
		if strings.Contains(strings.ToLower(s), text) {
			return true
		}
	}
	for _, s := range labels {
		if strings.Contains(strings.ToLower(s), text) {
			return true
		}
	}
	return false
}

// finalStatuses are those of runs that have ended.
var finalStatuses = []string{StatusCompleted, "failed", "cancelled", "expired"}

// StatusCompleted is the status of a run that has ended as it should.
const StatusCompleted = "completed"

// statuses returns the statuses that the query selects; none = all.
func (q *Query) statuses() []string {
	if q.Status != "" {
		return []string{q.Status}
	}
	return q.Statuses
}

// OnlyUnended reports whether the query selects only runs that have not ended.
func (q *Query) OnlyUnended() bool {
	s := q.statuses()
	return len(s) > 0 && !slices.ContainsFunc(s, func(s string) bool { return slices.Contains(finalStatuses, s) })
}

// OnlyFailed reports whether the query selects only runs that have ended and are not
// completed.
func (q *Query) OnlyFailed() bool {
	s := q.statuses()
	return len(s) > 0 && !slices.ContainsFunc(s, func(s string) bool { return s == StatusCompleted || !slices.Contains(finalStatuses, s) })
}

// A Place is where a run is in the order of lists: by creation, then run id.
type Place struct {
	Created int64
	Run     string
}

// Last is behind every run.
var Last = Place{Created: math.MaxInt64}

// Before returns the place before which the runs are that a query of roots selects, if
// the run of its field After is at `after`.
func (q *Query) Before(after Place) Place {
	if q.CreatedBefore != 0 && q.CreatedBefore <= after.Created {
		return Place{Created: q.CreatedBefore}
	}
	return after
}
