// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/retention"
)

// forever is the value of a retention setting that deletes nothing.
const forever = "forever"

const maxRetention = 36_500 * 24 * time.Hour

// Retention returns how long the data directory keeps what it holds.
func (c *Config) Retention() retention.Policy {
	get := func(key string) time.Duration {
		d, err := ParseRetention(c.Get(key).Value)
		if err != nil {
			return 0 // such a value was refused before
		}
		return d
	}
	return retention.Policy{Runs: get("retain.runs"), Files: get("retain.files"), Uploads: get("retain.uploads")}
}

// ParseRetention reads days ("7d"), a duration as in recipes ("36h", "P2W") or
// "forever", for which it returns a negative duration.
func ParseRetention(text string) (time.Duration, error) {
	if text == forever {
		return -1, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok && !strings.HasPrefix(days, "-") {
		if n, err := strconv.ParseUint(days, 10, 32); err == nil {
			text = fmt.Sprintf("P%dD", n)
		}
	}
	ms, err := recipe.ParseDuration(text)
	switch d := time.Duration(ms) * time.Millisecond; {
	case err != nil:
		return 0, errors.New("want a duration such as 7d or 36h, or forever")
	case ms > maxRetention.Milliseconds():
		return 0, errors.New("want at most 36500d, or forever")
	case d < retention.MinUploads:
		return 0, errors.New("want at least 1h: a run that is being started with a file must find it")
	default:
		return d, nil
	}
}

func checkRetention(text string) error {
	_, err := ParseRetention(text)
	return err
}
