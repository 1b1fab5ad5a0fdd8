// SPDX-License-Identifier: Apache-2.0

package recipe

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
)

const maxID = 64

// UniqueID shortens a generated id to the length that ids may have, and makes it differ from those that are taken.
func UniqueID(id string, taken func(id string) bool) string {
	if len(id) > maxID {
		sum := sha256.Sum256([]byte(id))
		id = id[:maxID-9] + "-" + hex.EncodeToString(sum[:4])
	}
	free := id
	for n := 2; taken(free); n++ {
		suffix := "-" + strconv.Itoa(n)
		free = id[:min(len(id), maxID-len(suffix))] + suffix
	}
	return free
}

// NameSteps gives the steps of the recipe that have no id, which not all dialects allow, the one that compile gives
// them; inner says whether also those within steps.
func (r *Recipe) NameSteps(inner bool) {
	n := namer{taken: map[string]bool{}, inner: inner}
	r.Each(func(s *Step) { n.taken[s.ID] = true })
	n.scope(r.Steps, "", true)
}

type namer struct {
	taken map[string]bool
	inner bool
}

// scope names the steps of a scope, then those of the scopes within it, as compile does.
func (n *namer) scope(steps []*Step, before string, set bool) {
	ids := make([]string, len(steps))
	for i, s := range steps {
		if ids[i] = s.ID; s.ID != "" {
			continue
		}
		ids[i] = n.take(before + "s" + strconv.Itoa(i))
		if set {
			s.ID = ids[i]
		}
	}
	for i, s := range steps {
		n.within(s, ids[i]+"-")
	}
}

func (n *namer) take(id string) string {
	id = UniqueID(id, func(id string) bool { return n.taken[id] })
	n.taken[id] = true
	return id
}

func (n *namer) within(s *Step, before string) {
	if c := s.Condition; c != nil {
		n.scope(c.Then, before+"then-", n.inner)
		n.scope(c.Else, before+"else-", n.inner)
	}
	if p := s.Parallel; p != nil {
		for b, branch := range p.Branches {
			n.scope(branch, before+"b"+strconv.Itoa(b)+"-", n.inner)
		}
	}
	if s.Loop != nil {
		n.scope(s.Loop.Steps, before, n.inner)
	}
	if s.OnError != nil && s.OnError.FallbackStep != nil {
		f := s.OnError.FallbackStep
		id := f.ID
		if id == "" {
			id = n.take(before + "fallback")
		}
		n.within(f, id+"-")
	}
	if s.Compensate != nil {
		n.take(before + "undo")
	}
}
