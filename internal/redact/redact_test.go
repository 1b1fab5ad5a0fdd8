// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/roux-engine/roux/internal/jsonx"
)

const canary = `s3cr€t "w0rd"\+/=?&` + "\n" + `<end>`

// formsOf are the forms as other programs write them, independently of package redact.
func formsOf(t testing.TB, v string) map[string]string {
	t.Helper()
	marshaled, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var plain bytes.Buffer
	enc := json.NewEncoder(&plain)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequest(http.MethodGet, "https://example.com/", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth("someone", v)
	quoted := strconv.Quote(v)
	return map[string]string{
		"plain":         v,
		"json":          string(marshaled[1 : len(marshaled)-1]),
		"json, plain":   strings.TrimSpace(plain.String())[1 : plain.Len()-2],
		"base64":        base64.StdEncoding.EncodeToString([]byte(v)),
		"base64 raw":    base64.RawStdEncoding.EncodeToString([]byte(v)),
		"base64 url":    base64.URLEncoding.EncodeToString([]byte(v)),
		"base64 rawurl": base64.RawURLEncoding.EncodeToString([]byte(v)),
		"hex":           hex.EncodeToString([]byte(v)),
		"HEX":           fmt.Sprintf("%X", v),
		"query":         url.QueryEscape(v),
		"path":          url.PathEscape(v),
		"userinfo":      url.UserPassword("x", v).String()[2:],
		"quoted":        quoted[1 : len(quoted)-1],
	}
}

// TestI18_Forms: a secret is removed in every form, at every place of a text, whole and
// split between any two writes.
func TestI18_Forms(t *testing.T) {
	for _, secret := range []string{canary, "sk-0123456789abcdef", "sixsix", strings.Repeat("ab", 100)} {
		set, err := New(secret)
		if err != nil {
			t.Fatal(err)
		}
		for name, form := range formsOf(t, secret) {
			text := "before " + form + " after"
			want := "before " + Mark + " after"
			if got := set.String(text); got != want {
				t.Errorf("%s of %q: got %q", name, secret, got)
			}
			for cut := range text {
				s := set.Stream()
				if got := s.Next(text[:cut]) + s.Next(text[cut:]) + s.End(); got != want {
					t.Fatalf("%s cut at %d: got %q", name, cut, got)
				}
			}
			r := set.Reader(iotest.OneByteReader(strings.NewReader(text)))
			if got, err := io.ReadAll(r); err != nil || string(got) != want {
				t.Errorf("%s byte by byte: got %q, %v", name, got, err)
			}
		}
	}
}

// TestI18_InsideBase64: the password of basic authentication is removed although other
// bytes stand before it.
func TestI18_InsideBase64(t *testing.T) {
	const secret = "hunter2-hunter2"
	set, err := New(secret)
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{"", "a", "ab", "abc", "someone"} {
		for _, after := range []string{"", "!", "!!", "!!!"} {
			for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.RawURLEncoding} {
				text := enc.EncodeToString([]byte(user + ":" + secret + after))
				got := set.String("Basic " + text)
				if !strings.Contains(got, Mark) {
					t.Errorf("%q: %q is left", user, got)
				}
				left, _ := enc.DecodeString(strings.ReplaceAll(strings.TrimPrefix(got, "Basic "), Mark, ""))
				if strings.Contains(string(left), secret[2:len(secret)-2]) {
					t.Errorf("%q: %q is left", user, left)
				}
			}
		}
	}
}

func TestTexts(t *testing.T) {
	set, err := New("abcdefgh", "fghijklm", "abcdefgh-long", "12345678")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, text, want string }{
		{"nothing", "nothing to see", "nothing to see"},
		{"empty", "", ""},
		{"two that overlap", "xabcdefghijklmx", "x[redacted]x"},
		{"one that continues another", "abcdefgh-long.", "[redacted]."},
		{"one after the other", "abcdefghabcdefgh", "[redacted]"},
		{"apart", "abcdefgh 12345678", "[redacted] [redacted]"},
		{"a beginning", "abcdefg abcdefg", "abcdefg abcdefg"},
		{"cut at an ellipsis", "key abcdefgh-lo… more", "key [redacted]… more"},
		{"cut too early to tell", "key abcde… more", "key abcde… more"},
		{"cut at the end", "key abcdefgh-l", "key [redacted]"},
		{"a false start", "abcabcdefgh", "abc[redacted]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := set.String(tt.text); got != tt.want {
				t.Errorf("String: got %q, want %q", got, tt.want)
			}
			s, got := set.Stream(), ""
			for i := range len(tt.text) {
				got += s.Next(tt.text[i : i+1])
			}
			got += s.End()
			// An ellipsis that is itself split over two writes is not recognised.
			if want := strings.ReplaceAll(tt.want, "key [redacted]… more", "key [redacted]-lo… more"); got != want {
				t.Errorf("Stream: got %q, want %q", got, want)
			}
		})
	}
}

// TestStreamHoldsBack: what is held back is at most the beginning of a secret.
func TestStreamHoldsBack(t *testing.T) {
	set, err := New("abcdefgh")
	if err != nil {
		t.Fatal(err)
	}
	s := set.Stream()
	for _, step := range []struct{ part, want string }{
		{"free text", "free text"}, {"abc", ""}, {"x", "abcx"}, {"ab", ""}, {"cdefgh", Mark}, {"and more", "and more"}, {"abcdefg", ""},
	} {
		if got := s.Next(step.part); got != step.want {
			t.Errorf("after %q: got %q, want %q", step.part, got, step.want)
		}
	}
	if got := s.End(); got != "abcdefg" {
		t.Errorf("at the end: got %q", got)
	}
	if got := s.Next("again abcdefgh."); got != "again "+Mark+"." {
		t.Errorf("after the end: got %q", got)
	}
}

func TestValues(t *testing.T) {
	set, err := New("s3cret!!", "4711471100")
	if err != nil {
		t.Fatal(err)
	}
	got := set.JSON([]byte(`{"a s3cret!!":["x",{"b":"Bearer s3cret!!"}],"n":4711471100,"o":12,"t":true,"z":null}`), jsonx.Limits{})
	if want := `{"a [redacted]":["x",{"b":"Bearer [redacted]"}],"n":"[redacted]","o":12,"t":true,"z":null}`; string(got) != want {
		t.Errorf("got %s", got)
	}
	if got := set.JSON([]byte(`{"a":`), jsonx.Limits{}); string(got) != `"[redacted]"` {
		t.Errorf("what cannot be decoded: got %s", got)
	}
}

func TestRefused(t *testing.T) {
	for _, bad := range []string{"", "hushh", "      ", strings.Repeat("x", MaxLen+1), "\xff\xfe123456"} {
		if _, err := New("a good one", bad); err == nil {
			t.Errorf("%.20q was accepted", bad)
		} else if bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("the error quotes the value: %v", err)
		}
	}
	if _, err := New(strings.Repeat("a", MaxLen), strings.Repeat("b", MaxLen), strings.Repeat("c", MaxLen), strings.Repeat("d", MaxLen), "one more"); err == nil {
		t.Error("more than MaxTotal was accepted")
	}
	var none *Set
	if s, err := New(); s != nil || err != nil || none.String("x") != "x" || none.Value(1) != 1 || none.Stream().Next("x") != "x" {
		t.Error("no secrets: want a set that removes nothing")
	}
}

// FuzzRedact: no form of a secret survives in any text around it, however the text arrives.
func FuzzRedact(f *testing.F) {
	f.Add("hunter2", "user:", "@host", uint64(1))
	f.Add(canary, "", "", uint64(2))
	f.Add("aaaaaaab", "aaaaaaaaaaa", "aaaa", uint64(3))
	f.Add("\"#\"\"\"\"", "0", "0", uint64(4)) // quoted, it ends with an escape
	f.Fuzz(func(t *testing.T, secret, before, after string, seed uint64) {
		set, err := New(secret)
		if err != nil || strings.Contains(Mark, secret) {
			return
		}
		dice := rand.New(rand.NewPCG(seed, 1))
		for name, form := range formsOf(t, secret) {
			// The mark itself must not complete a secret.
			if strings.Contains(Mark+Mark, form) {
				continue
			}
			text := before + form + after
			whole := set.String(text)
			s, split := set.Stream(), ""
			for rest := text; rest != ""; {
				n := 1 + dice.IntN(len(rest))
				split += s.Next(rest[:n])
				rest = rest[n:]
			}
			split += s.End()
			for _, got := range []string{whole, split} {
				for _, part := range strings.Split(got, Mark) {
					if strings.Contains(part, form) {
						t.Fatalf("%s of %q survives in %q", name, secret, got)
					}
				}
			}
		}
	})
}

// BenchmarkRedact: texts without and with secrets, and the worst text for a search that
// begins anew at each byte.
func BenchmarkRedact(b *testing.B) {
	secrets := make([]string, 20)
	dice := rand.New(rand.NewPCG(1, 2))
	for i := range secrets {
		raw := make([]byte, 30)
		for j := range raw {
			raw[j] = byte(dice.Uint32())
		}
		secrets[i] = base64.StdEncoding.EncodeToString(raw)
	}
	set, err := New(secrets...)
	if err != nil {
		b.Fatal(err)
	}
	long, err := New(strings.Repeat("a", 4000) + "b")
	if err != nil {
		b.Fatal(err)
	}
	var pairs []string
	for _, s := range secrets {
		for _, form := range forms(s) {
			pairs = append(pairs, form, Mark)
		}
	}
	prose := strings.Repeat("The quick brown fox jumps over the lazy dog. ", 20_000)
	worst := strings.Repeat("a", len(prose))
	for _, bb := range []struct {
		name string
		text string
		fn   func(string) string
	}{
		{"prose", prose, set.String},
		{"prose/strings.Replacer", prose, strings.NewReplacer(pairs...).Replace},
		{"worst", worst, long.String},
		{"worst/strings.Replacer", worst, strings.NewReplacer(strings.Repeat("a", 4000)+"b", Mark, "x!", Mark).Replace},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.SetBytes(int64(len(bb.text)))
			for b.Loop() {
				bb.fn(bb.text)
			}
		})
	}
}
