// SPDX-License-Identifier: Apache-2.0

// Package sources gets recipes from outside of the machine: from a Git repository, from a
// package, or from an https URL of one text.
//
// It decides which sources may be named, that what is got has the hash that was pinned, and
// which files of it are kept. What comes from outside is bounded in bytes, files, time and
// ratio of compression, and is written below one directory only. All of it goes through
// package egress, also what the program git asks for. The package compiles nothing, runs
// nothing that it has fetched, and knows no accounts.
package sources

import (
	"cmp"
	"net/url"
	"path"
	"regexp"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/egress"
)

// The kinds of sources.
const (
	Directory = "directory"
	Git       = "git"
	Text      = "text"    // one recipe or lens
	Package   = "package" // a .tar.gz
)

const gitPrefix = "git+"

// A Source says where recipes are.
type Source struct {
	Kind string
	// Where is the directory, the file of a package, or the URL, without what follows.
	Where string
	As    string // how Name has Where, with slashes; "" = as it is
	Ref   string // of Git: a branch, a tag or a whole commit; "" = what the repository names HEAD
	// Sub is the directory in a repository or a package; "" = its root.
	Sub string
	// Pin is the sha256 that the source states, in hexadecimal; "" = none.
	Pin string
}

const wantSource = "want a directory, a package such as recipes.tar.gz, an https URL of a text or a package, or git+https://host/repository@ref#directory"

// ref is what a branch, a tag or a commit may be called here. None begins like an option.
var ref = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,199}$`)

// hash is a sha256 in hexadecimal.
var hash = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Parse reads a source. What is no URL and does not end in .tar.gz or .tgz is a directory.
// An error has the URL without its query, which may hold secrets.
func Parse(text string) (*Source, error) {
	scheme, _, isURL := strings.Cut(text, "://")
	if !isURL {
		return parseLocal(text)
	}
	s := &Source{Kind: Text}
	where, fragment, _ := strings.Cut(text, "#")
	switch {
	case scheme == "git+https":
		s.Kind, where = Git, strings.TrimPrefix(where, gitPrefix)
		where, s.Ref = cutRef(where)
	case scheme != "https":
		return nil, fault.New(fault.Usage, "a source with %q is refused: %s", scheme+"://", wantSource)
	}
	u, err := egress.ParseURL(where)
	if err != nil {
		return nil, fault.Wrap(fault.Usage, err, "the source is refused: %s", fault.Message(err))
	}
	s.Where = u.String()
	if s.Kind == Text && isPackage(u.Path) {
		s.Kind = Package
	}
	switch {
	case s.Kind == Git && (u.RawQuery != "" || strings.Trim(u.Path, "/") == ""):
		return nil, fault.New(fault.Usage, "%s is no repository: want git+https://host/repository, without a query", egress.Show(u))
	case s.Ref != "" && (!ref.MatchString(s.Ref) || strings.Contains(s.Ref, "..") || strings.HasSuffix(s.Ref, "/")):
		return nil, fault.New(fault.Usage, "%s: the ref %q is refused: want a branch, a tag or a whole commit", egress.Show(u), s.Ref)
	}
	if err := s.parseFragment(fragment); err != nil {
		return nil, fault.Wrap(fault.Usage, err, "%s: %s", egress.Show(u), fault.Message(err))
	}
	if s.Kind == Text && s.Sub != "" {
		return nil, fault.New(fault.Usage, "%s: a text has no directory %q", egress.Show(u), s.Sub)
	}
	return s, nil
}

func parseLocal(text string) (*Source, error) {
	where, fragment, has := strings.Cut(text, "#")
	if !isPackage(where) {
		return &Source{Kind: Directory, Where: text}, nil
	}
	s := &Source{Kind: Package, Where: where}
	if !has {
		return s, nil
	}
	if err := s.parseFragment(fragment); err != nil {
		return nil, fault.Wrap(fault.Usage, err, "%s: %s", where, fault.Message(err))
	}
	return s, nil
}

// cutRef splits a URL at the @ of its last element, which comes before a ref. A ref may have
// slashes, so the first @ after the host counts.
func cutRef(where string) (rest, ref string) {
	_, after, ok := strings.Cut(where, "://")
	if !ok {
		return where, ""
	}
	slash := strings.IndexByte(after, '/')
	if slash < 0 {
		return where, ""
	}
	at := strings.IndexByte(after[slash:], '@')
	if at < 0 {
		return where, ""
	}
	cut := len(where) - len(after) + slash + at
	return where[:cut], where[cut+1:]
}

// isPackage reports whether a path has the extension of a package.
func isPackage(name string) bool {
	name = strings.ToLower(name)
	return strings.HasSuffix(name, ".tar.gz") || strings.HasSuffix(name, ".tgz")
}

// parseFragment reads what follows a #: a directory, a hash, or both with & between them.
func (s *Source) parseFragment(text string) error {
	for part := range strings.SplitSeq(text, "&") {
		switch pin, is := strings.CutPrefix(part, "sha256="); {
		case part == "":
		case is && s.Pin != "", !is && s.Sub != "":
			return fault.New(fault.Usage, "%q is one too many: want #directory, #sha256=HASH or #directory&sha256=HASH", part)
		case is && !hash.MatchString(pin):
			return fault.New(fault.Usage, "%q is no hash: want sha256= and 64 digits of hexadecimal, in lower case", part)
		case is:
			s.Pin = pin
		default:
			dir, err := url.PathUnescape(part)
			if clean := path.Clean(dir); err != nil || path.IsAbs(dir) || clean == ".." || strings.HasPrefix(clean, "../") || strings.ContainsAny(dir, "\\\x00") {
				return fault.New(fault.Usage, "Path traversal not allowed: %q is no directory in the source", part)
			}
			if s.Sub = path.Clean(dir); s.Sub == "." {
				s.Sub = ""
			}
		}
	}
	return nil
}

// External reports whether the source is not a directory, so that it must be pinned.
func (s *Source) External() bool { return s.Kind != Directory }

// Name is the source as a person writes it, without the pin. Two sources of that name are
// the same. A query is in it, because it may decide what is answered.
func (s *Source) Name() string {
	name := cmp.Or(s.As, s.Where)
	if s.Kind == Git {
		name = gitPrefix + name
	}
	if s.Ref != "" {
		name += "@" + s.Ref
	}
	if s.Sub != "" {
		name += "#" + escapeSub.Replace(s.Sub)
	}
	return name
}

// escapeSub escapes what has a meaning in a fragment, so that Parse reads the directory again.
var escapeSub = strings.NewReplacer("%", "%25", "&", "%26", "=", "%3D")

// Show is Name for messages: without the values of a query.
func (s *Source) Show() string {
	if u, err := url.Parse(s.Where); err == nil && u.RawQuery != "" {
		shown := *s
		shown.Where = egress.Show(u)
		return shown.Name()
	}
	return s.Name()
}
