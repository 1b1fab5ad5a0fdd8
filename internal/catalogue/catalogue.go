// SPDX-License-Identifier: Apache-2.0

// Package catalogue is what actions and lenses there are, and which of them a name and a version mean.
//
// It decides what a range of versions admits, which of two versions is newer, what an action costs at
// least, and what a recipe looks like that only calls one. It never decides who may call what, and runs
// nothing.
package catalogue

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/ledger"
)

// Actions looks up declared actions. [Catalogue] implements it; a server that limits
// what an account may call has its own implementation (X205).
type Actions interface {
	Finder
	// Versions lists the versions of name, newest first.
	Versions(name string) []string
	// Names lists all names, without aliases, sorted.
	Names() []string
}

// A Finder looks up one action.
type Finder interface {
	// Find returns the newest declaration of name whose version satisfies version:
	// "" for any, a range such as "1" or "1.2", or an exact version. It returns nil
	// when there is none. An alias finds the action that declares it.
	Find(name, version string) *action.Action
}

// A Catalogue is a fixed set of declarations.
type Catalogue struct {
	byName map[string][]*action.Action // newest first
	alias  map[string]string           // alias to name
	names  []string
}

// New returns a catalogue of the declarations. If two have the same name
// and version, the later one wins.
func New(decls ...*action.Action) *Catalogue {
	c := &Catalogue{byName: map[string][]*action.Action{}, alias: map[string]string{}}
	for _, d := range decls {
		had := c.byName[d.Name]
		if i := slices.IndexFunc(had, func(o *action.Action) bool { return o.Version == d.Version }); i >= 0 {
			had[i] = d
			continue
		}
		if len(had) == 0 && IsActionName(d.Name) { // others are called by what recipes say instead
			c.names = append(c.names, d.Name)
		}
		c.byName[d.Name] = append(had, d)
	}
	for _, d := range decls {
		for _, a := range d.Aliases {
			if c.byName[a] == nil {
				c.alias[a] = d.Name
			}
		}
	}
	for _, ds := range c.byName {
		slices.SortFunc(ds, func(a, b *action.Action) int { return CompareVersions(b.Version, a.Version) })
	}
	slices.Sort(c.names)
	return c
}

// declarations returns the declarations of a name or an alias.
func (c *Catalogue) declarations(name string) []*action.Action {
	if of, ok := c.alias[name]; ok {
		name = of
	}
	return c.byName[name]
}

// Find implements [Actions].
func (c *Catalogue) Find(name, version string) *action.Action {
	for _, d := range c.declarations(name) {
		if Admits(version, d.Version) {
			return d
		}
	}
	return nil
}

// Versions implements [Actions].
func (c *Catalogue) Versions(name string) []string {
	var vs []string
	for _, d := range c.declarations(name) {
		vs = append(vs, d.Version)
	}
	return vs
}

// Names implements [Actions].
func (c *Catalogue) Names() []string { return c.names }

// Admits reports whether a version satisfies the one wanted by a recipe: "" is any
// release, "1" is any release 1.x.y, "1.2" any release 1.2.x, "1.2.3" only itself. A pre-release
// satisfies only its exact version.
func Admits(want, version string) bool {
	if want == version {
		return true
	}
	if strings.ContainsAny(version, "-") {
		return false
	}
	version, _, _ = strings.Cut(version, "+")
	return want == "" || want == version || strings.HasPrefix(version, want+".") && strings.Count(want, ".") < 2
}

// IsActionName reports whether a text can be the name of an action, see [action.Action].
func IsActionName(text string) bool { return actionForm.MatchString(text) }

var actionForm = regexp.MustCompile(`^[a-z][a-z0-9-]{0,63}$`)

// CompareVersions orders semantic versions. A pre-release comes before its release;
// parts that are not numbers are compared as text.
func CompareVersions(a, b string) int {
	a, _, _ = strings.Cut(a, "+")
	b, _, _ = strings.Cut(b, "+")
	coreA, preA, _ := strings.Cut(a, "-")
	coreB, preB, _ := strings.Cut(b, "-")
	if d := compareParts(coreA, coreB); d != 0 {
		return d
	}
	switch {
	case preA == preB:
		return 0
	case preA == "":
		return 1
	case preB == "":
		return -1
	}
	return compareParts(preA, preB)
}

func compareParts(a, b string) int {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(as), len(bs)) {
		x, errX := strconv.ParseUint(as[i], 10, 63)
		y, errY := strconv.ParseUint(bs[i], 10, 63)
		d := strings.Compare(as[i], bs[i])
		switch {
		case errX == nil && errY == nil:
			d = cmp.Compare(x, y)
		case errX == nil:
			d = -1 // numbers come before words
		case errY == nil:
			d = 1
		}
		if d != 0 {
			return d
		}
	}
	return cmp.Compare(len(as), len(bs))
}

// Only returns the actions whose names are permitted. Others look as if there were none.
func Only(all Actions, permitted func(name string) bool) Actions { return only{all, permitted} }

type only struct {
	all       Actions
	permitted func(string) bool
}

// Find implements [Actions].
func (o only) Find(name, version string) *action.Action {
	if found := o.all.Find(name, version); found != nil && o.permitted(found.Name) {
		return found
	}
	return nil
}

// Versions implements [Actions].
func (o only) Versions(name string) []string {
	return slices.DeleteFunc(slices.Clone(o.all.Versions(name)), func(v string) bool { return o.Find(name, v) == nil })
}

// Names implements [Actions].
func (o only) Names() []string {
	return slices.DeleteFunc(slices.Clone(o.all.Names()), func(name string) bool { return !o.permitted(name) })
}

// Price returns the price that an action declares, 0 for one without. A price that cannot
// be read, or beside a cost, is fault.PriceUnknown: it does not count as 0.
func Price(a *action.Action) (ledger.Amount, error) {
	switch {
	case a.Price == "":
		return 0, nil
	case a.Cost != 0:
		return 0, fault.New(fault.PriceUnknown, "action %s@%s declares a cost of %d and a price of %s: only one of them can hold", a.Name, a.Version, a.Cost, a.Price)
	}
	price, err := ledger.ParseAmount(a.Price)
	if err != nil {
		return 0, fault.Wrap(fault.PriceUnknown, err, "the price of action %s@%s: %s", a.Name, a.Version, fault.Message(err))
	}
	return price, nil
}
