// SPDX-License-Identifier: Apache-2.0

package yamlx

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/internal/jsonx"
)

var (
	// Numbers of the YAML 1.2 core schema that JSON does not have: with a plus sign, or
	// without digits before or after the point, hexadecimal and octal integers.
	coreFloat = regexp.MustCompile(`^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$`)
	coreBased = regexp.MustCompile(`^(0x[0-9a-fA-F]+|0o[0-7]+)$`)
	// 0777 is 777 in YAML 1.2, 511 in YAML 1.1, and many people mean a string.
	leadingZero = regexp.MustCompile(`^[-+]?0[0-9]`)
	infinite    = regexp.MustCompile(`^([-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$`)
)

// resolve determines what a plain scalar is: null, a boolean or a number by the rules of
// YAML 1.2, else a string, including `yes`, `on`, dates, `1_000` and `12:30:45`. If it
// refuses a number, msg says why.
func resolve(text string, n *jsonx.Node) (msg, hint string) {
	n.Text = ""
	switch text {
	case "", "~", "null", "Null", "NULL":
		n.Kind = jsonx.Null
		return "", ""
	case "true", "True", "TRUE", "false", "False", "FALSE":
		n.Kind, n.Bool = jsonx.Bool, text[0] == 't' || text[0] == 'T'
		return "", ""
	}
	// Most scalars begin with a letter, so this avoids the regular expressions.
	if strings.IndexByte("+-.0123456789", text[0]) < 0 {
		n.Kind, n.Style, n.Text = jsonx.String, jsonx.Plain, text
		return "", ""
	}
	switch {
	case infinite.MatchString(text):
		n.Kind = jsonx.Float
		return fmt.Sprintf("%s is no JSON number", text), "put it in quotes if it is text"
	case coreBased.MatchString(text):
		i, err := strconv.ParseInt(text, 0, 64)
		if err != nil {
			n.Kind = jsonx.Int
			return fmt.Sprintf("the integer %s does not fit 64 bits", shorten(text)), "write it as a string"
		}
		n.Kind, n.Int = jsonx.Int, i
		return "", ""
	case !coreFloat.MatchString(text):
		n.Kind, n.Style, n.Text = jsonx.String, jsonx.Plain, text
		return "", ""
	case leadingZero.MatchString(text):
		n.Kind = jsonx.Int
		return fmt.Sprintf("%s begins with a zero, which some read as octal", shorten(text)), "drop the zero, or put it in quotes if it is text"
	}
	v, _, problem := jsonx.ParseNumber(asJSON(text))
	switch v := v.(type) {
	case int64:
		n.Kind, n.Int = jsonx.Int, v
	case float64:
		n.Kind, n.Float = jsonx.Float, v
	default:
		n.Kind = jsonx.Int
	}
	return problem, ""
}

// asJSON converts a decimal number of YAML to JSON's grammar.
func asJSON(text string) string {
	text = strings.TrimPrefix(text, "+")
	sign := ""
	if strings.HasPrefix(text, "-") {
		sign, text = "-", text[1:]
	}
	if strings.HasPrefix(text, ".") {
		text = "0" + text
	}
	mantissa, exponent := text, ""
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		mantissa, exponent = text[:i], text[i:]
	}
	if strings.HasSuffix(mantissa, ".") {
		mantissa += "0"
	}
	return sign + mantissa + exponent
}

func shorten(s string) string {
	if len(s) > 40 {
		return s[:37] + "..."
	}
	return s
}
