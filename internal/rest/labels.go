// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"strings"
	"time"

	"github.com/roux-engine/roux/fault"
)

// Bounds of labels.
const (
	maxLabels     = 20
	maxLabelName  = 63
	maxLabelValue = 256
)

// CheckLabels refuses labels of a run that exceed a bound.
func CheckLabels(labels map[string]string) error {
	if len(labels) > maxLabels {
		return fault.New(fault.RequestInvalid, "labels: want at most %d", maxLabels)
	}
	for name, value := range labels {
		ok := name != "" && len(name) <= maxLabelName && len(value) <= maxLabelValue
		for _, c := range name {
			ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("._-/", c))
		}
		if !ok {
			return fault.New(fault.RequestInvalid, "labels: a name has up to %d letters, digits, '.', '_', '-' and '/', and a value up to %d bytes", maxLabelName, maxLabelValue)
		}
	}
	return nil
}

// Duration reads an interval of a request; "" = none.
func Duration(field, text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fault.New(fault.RequestInvalid, "%s: %q is no interval: want one such as 90s, 15m or 6h", field, text)
	}
	return d, nil
}
