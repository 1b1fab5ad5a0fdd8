// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile/form"
)

// LockFile is the name of the lock file of a project.
const LockFile = "roux.lock"

// MaxLock is how many bytes a lock file may have.
const MaxLock = 4 << 20

// The kinds of what recipes refer to.
const (
	Recipe = "recipe"
	Lens   = "lens"
)

// A Lock says what the sources and the references of a project stand for.
type Lock struct {
	Format     int64             `json:"lock"`
	Sources    []LockedSource    `json:"sources,omitempty"`
	References []LockedReference `json:"references,omitempty"`
}

// A LockedSource is a source with its hash.
type LockedSource struct {
	Source string `json:"source"`
	Commit string `json:"commit,omitempty"`
	SHA256 string `json:"sha256"`
}

// A LockedReference is what a reference of a recipe stands for.
type LockedReference struct {
	Kind    string `json:"kind"`           // recipe or lens
	Ref     string `json:"ref"`            // as a step names it, such as digest@1
	Name    string `json:"name,omitempty"` // of what Ref names by its id; "" = Ref has the name
	Version string `json:"version"`
	SHA256  string `json:"sha256"`          // of its text
	Files   string `json:"files,omitempty"` // hash of the files that the text includes; "" = none
}

// named returns the name of what is referred to, and the version or range that the step wants.
func (r *LockedReference) named() (name, wanted string) {
	name, wanted, _ = strings.Cut(r.Ref, "@")
	return cmp.Or(r.Name, name), wanted
}

const wantHash = "64 digits of hexadecimal, in lower case"

var lockForm = form.New[Lock](&form.Table{
	Rules: map[string]form.Rule{
		"Lock.lock":               form.Number("The version of this format.", "", lockFormat, lockFormat, lockFormat),
		"Lock.sources":            {Null: true, Doc: "What is fetched."},
		"Lock.references":         {Null: true, Doc: "What recipes name."},
		"LockedSource.source":     {Doc: "The source.", Required: true, Pattern: form.Text},
		"LockedSource.commit":     {Null: true, Doc: "The commit of a repository.", Pattern: form.Text},
		"LockedSource.sha256":     {Doc: "The hash of its content.", Required: true, Pattern: form.Match(hash.String(), wantHash)},
		"LockedReference.kind":    {Doc: "Whether it is a recipe or a lens.", Required: true, Pattern: form.Match(`^(recipe|lens)$`, "recipe or lens")},
		"LockedReference.ref":     {Doc: "As a step names it.", Required: true, Pattern: form.Text},
		"LockedReference.name":    {Null: true, Doc: "The name of what ref names by its id.", Pattern: form.Text},
		"LockedReference.version": {Doc: "The version that it stands for.", Required: true, Pattern: form.Text},
		"LockedReference.sha256":  {Doc: "The hash of its text.", Required: true, Pattern: form.Match(hash.String(), wantHash)},
		"LockedReference.files":   {Null: true, Doc: "The hash of the files that the text includes.", Pattern: form.Match(hash.String(), wantHash)},
	},
	Nouns: map[string]string{"Lock": "a lock file", "LockedSource": "a source", "LockedReference": "a reference"},
})

// lockFormat is the version of the format that is written.
const lockFormat = 1

// ParseLock reads a lock file. The lock is nil if it has problems, which are all listed.
func ParseLock(file string, text []byte) (*Lock, *form.Source, []fault.Diagnostic) {
	tree, d := form.Read(file, text, form.Options{MaxBytes: MaxLock})
	l := new(Lock)
	if tree != nil {
		d.Decode(tree, lockForm, l)
	}
	diags := d.Diagnostics()
	if tree != nil && len(diags) == 0 && l.Format != lockFormat {
		d.Add(tree.Pos, "version", "the file does not say lock: 1, the format that this release reads", "write it anew with `roux lock --update`")
		diags = d.Diagnostics()
	}
	if len(diags) > 0 {
		return nil, d.Source(), diags
	}
	return l, d.Source(), nil
}

const lockHead = "# Written by `roux lock`. Keep it with the recipes; `roux lock --update` takes what there is now.\n"

// Text writes the lock. Equal locks have equal texts, and an entry has lines of its own, so
// that a change of one does not touch the others.
func (l *Lock) Text() []byte {
	var b bytes.Buffer
	b.WriteString(lockHead)
	fmt.Fprintf(&b, "lock: %d\n", lockFormat)
	list := slices.Clone(l.Sources)
	slices.SortFunc(list, func(a, b LockedSource) int { return strings.Compare(a.Source, b.Source) })
	if len(list) > 0 {
		b.WriteString("sources:\n")
	}
	for _, s := range list {
		writeEntry(&b, "source", s.Source, "commit", s.Commit, "sha256", s.SHA256)
	}
	refs := slices.Clone(l.References)
	slices.SortFunc(refs, func(a, b LockedReference) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Ref, b.Ref))
	})
	if len(refs) > 0 {
		b.WriteString("references:\n")
	}
	for _, r := range refs {
		writeEntry(&b, "kind", r.Kind, "ref", r.Ref, "name", r.Name, "version", r.Version, "sha256", r.SHA256, "files", r.Files)
	}
	return b.Bytes()
}

// writeEntry writes the fields that are not empty, as texts of JSON, which YAML reads alike.
func writeEntry(b *bytes.Buffer, fields ...string) {
	lead := "  - "
	for i := 0; i < len(fields); i += 2 {
		if fields[i+1] == "" {
			continue
		}
		text, err := json.Marshal(fields[i+1])
		if err != nil {
			continue // a text can be encoded
		}
		fmt.Fprintf(b, "%s%s: %s\n", lead, fields[i], text)
		lead = "    "
	}
}

// Pin returns the hash of a source; "" = it has none. A nil lock has none.
func (l *Lock) Pin(s *Source) string {
	if l != nil {
		for _, known := range l.Sources {
			if known.Source == s.Name() {
				return known.SHA256
			}
		}
	}
	return ""
}

// Set puts a source into the lock, in place of the one of its name.
func (l *Lock) Set(g *Fetched) {
	entry := LockedSource{Source: g.Source.Name(), Commit: g.Commit, SHA256: g.Hash}
	for i := range l.Sources {
		if known := &l.Sources[i]; known.Source == entry.Source {
			if known.SHA256 != entry.SHA256 || entry.Commit != "" {
				*known = entry
			}
			return
		}
	}
	l.Sources = append(l.Sources, entry)
}

// Check refuses a reference that the lock does not have, or that stands for another text. A nil
// lock refuses none.
func (l *Lock) Check(found LockedReference) error {
	if l == nil {
		return nil
	}
	for _, known := range l.References {
		if known.Kind != found.Kind || known.Ref != found.Ref {
			continue
		}
		if known == found {
			return nil
		}
		e := fault.New(fault.Conflict, "the %s %q has changed: %s expects version %s with sha256=%s, found version %s with sha256=%s",
			found.Kind, found.Ref, LockFile, known.Version, known.SHA256, found.Version, found.SHA256)
		if known.Version == found.Version && known.SHA256 == found.SHA256 {
			e.Msg = fmt.Sprintf("a file that the %s %q includes has changed: %s expects files=%s, found files=%s",
				found.Kind, found.Ref, LockFile, cmp.Or(known.Files, "none"), cmp.Or(found.Files, "none"))
		}
		e.Remedy = "Read what it is now, then run `roux lock --update`."
		return e
	}
	e := fault.New(fault.Conflict, "the %s %q is not in %s: found version %s with sha256=%s", found.Kind, found.Ref, LockFile, found.Version, found.SHA256)
	e.Remedy = "Run `roux lock`, which adds it."
	return e
}

// CheckText refuses a text that is to be registered, if a reference stands for its version with
// another text, or would stand for its version from then on. A draft takes no other version's
// place. text has the name and no Ref; its version is "" for a lens that states none.
func (l *Lock) CheckText(text LockedReference, draft bool) error {
	if l == nil {
		return nil
	}
	for i := range l.References {
		known := &l.References[i]
		name, wanted := known.named()
		if known.Kind != text.Kind || name != text.Name || known.SHA256 == text.SHA256 {
			continue
		}
		if known.Version == text.Version {
			e := fault.New(fault.Conflict, "version %s of the %s %q has changed: %s expects sha256=%s, found sha256=%s", text.Version, text.Kind, name, LockFile, known.SHA256, text.SHA256)
			e.Remedy = "Give the text another version, or run `roux lock --update`."
			return e
		}
		if !draft && text.follows(known.Version, wanted) {
			e := fault.New(fault.Conflict, "version %s of the %s %q is not in %s: %q stands for version %s there, and would stand for this one with sha256=%s",
				cmp.Or(text.Version, "(none)"), text.Kind, name, LockFile, known.Ref, known.Version, text.SHA256)
			e.Remedy = "Read the text, then run `roux lock --update`."
			return e
		}
	}
	return nil
}

// follows reports whether a reference that wants a version or range, and stands for the version
// pinned, stands for r when that is registered.
func (r *LockedReference) follows(pinned, wanted string) bool {
	switch {
	case r.Kind == Lens && wanted != "": // of a lens an exact version
		return false
	case r.Kind == Lens && r.Version == "": // it gets the next number
		return true
	case r.Kind == Recipe && !catalogue.Admits(wanted, r.Version):
		return false
	}
	return cmp.Or(catalogue.CompareVersions(r.Version, pinned), strings.Compare(r.Version, pinned)) > 0
}
