// SPDX-License-Identifier: Apache-2.0

package jsonx

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// A Secret is a text with secrets in it, which are known by their names only. In JSON it is
//
//	{"$roux":"secret","parts":["Bearer ",["api-token"]]}
//
// where a list of one name stands for the value of that secret. It is made of the
// parameters of a recipe alone: the name "$roux" is reserved ([Reserved]), so that no value
// from outside can become a reference to a secret.
type Secret struct{ Parts []SecretPart }

// A SecretPart is a text, or the name of a secret if that is not "".
type SecretPart struct{ Text, Name string }

// secretOpen is the beginning of every Secret in canonical JSON. It occurs nowhere else,
// because a quote inside a string is escaped.
var secretOpen = []byte(`{"$roux":"secret","parts":[`)

// maxSecretName bounds the name of a secret.
const maxSecretName = 64

// SecretName reports whether a secret can have that name: letters, digits, underscores and
// dashes, at most 64.
func SecretName(name string) bool {
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-':
		default:
			return false
		}
	}
	return name != "" && len(name) <= maxSecretName
}

// Append appends the reference as canonical JSON.
func (s Secret) Append(dst []byte) ([]byte, error) {
	dst = append(dst, secretOpen...)
	for i, p := range s.Parts {
		if i > 0 {
			dst = append(dst, ',')
		}
		var err error
		if p.Name == "" {
			dst, err = appendString(dst, p.Text)
		} else {
			dst, err = appendString(append(dst, '['), p.Name)
			dst = append(dst, ']')
		}
		if err != nil {
			return nil, err
		}
	}
	return append(dst, "]}"...), nil
}

// HasSecret reports whether canonical JSON contains a [Secret].
func HasSecret(canonical []byte) bool { return bytes.Contains(canonical, secretOpen) }

// FillSecrets replaces every [Secret] in canonical JSON by its text. value returns the value
// of a secret; its error is returned as it is. The result has at most most bytes.
func FillSecrets(canonical []byte, most int, value func(name string) (string, error)) ([]byte, error) {
	out := make([]byte, 0, len(canonical))
	for {
		at := bytes.Index(canonical, secretOpen)
		if at < 0 {
			break
		}
		out = append(out, canonical[:at]...)
		text, n, err := fillSecret(canonical[at+len(secretOpen):], most-len(out), value)
		if err != nil {
			return nil, err
		}
		if out, err = appendString(out, text); err != nil {
			return nil, err
		}
		if canonical = canonical[at+len(secretOpen)+n:]; len(out)+len(canonical) > most {
			return nil, errSecretsTooLarge(most)
		}
	}
	return append(out, canonical...), nil
}

func errSecretsTooLarge(most int) error {
	return fmt.Errorf("with its secrets the value has more than %d bytes", most)
}

// fillSecret returns the text of the parts that raw begins with, and how many bytes they
// have with the brackets after them.
func fillSecret(raw []byte, most int, value func(name string) (string, error)) (text string, n int, err error) {
	var b []byte
	for rest := raw; ; rest = raw[n:] {
		switch {
		case bytes.HasPrefix(rest, []byte("]}")):
			return string(b), n + len("]}"), nil
		case len(rest) > 0 && rest[0] == ',':
			n++
		case len(rest) > 0 && (rest[0] == '"' || rest[0] == '['):
			d := json.NewDecoder(bytes.NewReader(rest))
			var part any
			if err := d.Decode(&part); err != nil {
				return "", 0, err
			}
			n += int(d.InputOffset())
			switch part := part.(type) {
			case string:
				b = append(b, part...)
			case []any:
				name, _ := one(part).(string)
				if !SecretName(name) {
					return "", 0, fmt.Errorf("a reference to a secret has no name")
				}
				v, err := value(name)
				if err != nil {
					return "", 0, err
				}
				b = append(b, v...)
			}
			if len(b) > most {
				return "", 0, errSecretsTooLarge(most)
			}
		default:
			return "", 0, fmt.Errorf("a reference to a secret is not complete")
		}
	}
}

// one returns the only element of a list, or nil.
func one(list []any) any {
	if len(list) != 1 {
		return nil
	}
	return list[0]
}
