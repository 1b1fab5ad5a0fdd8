// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/roux-engine/roux/internal/compile/recipe"
)

// forever is the text of a time after which nothing is deleted.
const forever = "forever"

const longest = 36_500 * 24 * time.Hour

// Parse reads days ("7d"), a duration as in recipes ("36h", "P2W") or
// "forever", for which it returns a negative duration.
func Parse(text string) (time.Duration, error) {
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
	case ms > longest.Milliseconds():
		return 0, errors.New("want at most 36500d, or forever")
	case d < MinUploads:
		return 0, errors.New("want at least 1h: a run that is being started with a file must find it")
	default:
		return d, nil
	}
}
