// SPDX-License-Identifier: Apache-2.0

package blob

import (
	"errors"
	"io"
	"os"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/gabriel-vasile/mimetype"
)

const (
	// headBytes is how much of a file the detection of its type reads.
	headBytes = 3072
	// maxName is what most file systems allow, so a name can be used for a file again.
	maxName = 255
)

// textTypes are types without a signature: only the name tells the type of plain text.
var textTypes = map[string]string{
	".md": "text/markdown", ".markdown": "text/markdown", ".txt": "text/plain",
	".csv": "text/csv", ".tsv": "text/tab-separated-values", ".yaml": "application/yaml",
	".yml": "application/yaml", ".jsonl": "application/x-ndjson", ".ndjson": "application/x-ndjson",
}

// detect returns the MIME type that the first bytes show. The type that the caller
// declares counts only among kinds of text; it never overrules bytes that show a type
// (A10).
func detect(head []byte, name, declared string) string {
	found := mediaType(mimetype.Detect(head).String())
	if found != "text/plain" {
		return found
	}
	declared = mediaType(declared)
	if strings.HasPrefix(declared, "text/") && declared != "text/plain" || isTextual(declared) {
		return declared
	}
	if t, ok := textTypes[strings.ToLower(path.Ext(name))]; ok {
		return t
	}
	return found
}

func isTextual(t string) bool {
	for _, known := range textTypes {
		if t == known && t != "text/plain" {
			return true
		}
	}
	return false
}

// mediaType removes parameters such as "; charset=utf-8".
func mediaType(t string) string {
	t, _, _ = strings.Cut(t, ";")
	return strings.ToLower(strings.TrimSpace(t))
}

// CleanName returns the last element of an upload's name, without anything that could
// do harm when the name is shown or used for a file later (A15).
func CleanName(name string) string {
	name = strings.ToValidUTF8(name, "")
	if i := strings.LastIndexAny(name, `/\`); i >= 0 {
		name = name[i+1:]
	}
	name = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return -1
		}
		return r
	}, name)
	name = strings.TrimSpace(name)
	for len(name) > maxName {
		_, n := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-n]
	}
	if name == "." || name == ".." {
		return ""
	}
	return name
}

func readHead(f *os.File) ([]byte, error) {
	head := make([]byte, headBytes)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return head[:n], nil
}
