// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// allowed are the licences that modules in the binary may have. SQLite is in the public
// domain; the SPDX identifier of its notice is blessing.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "blessing"}

// ignoredFiles are files that look like a licence of the module but are not. A person
// has read each of them.
var ignoredFiles = map[string]string{
	"modernc.org/sqlite LICENSE-3RD-PARTY.md": "licences of other modules: those that are linked are judged by themselves",
	"modernc.org/memory LICENSE-LOGO":         "where a picture comes from that is not linked",
}

// signatures are phrases that occur in one licence only, in lower case.
var signatures = []struct {
	id    string
	words []string
}{
	{"Apache-2.0", []string{"apache license version 2.0, january 2004"}},
	{"ISC", []string{"permission to use, copy, modify, and distribute this software for any purpose with or without fee is hereby granted"}},
	{"MIT", []string{"permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files"}},
	{"ISC", []string{"permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby granted"}},
	{"blessing", []string{"all of the code and documentation in sqlite has been dedicated to the public domain by the authors"}},
	{"MPL-2.0", []string{"mozilla public license version 2.0", "mozilla public license, version 2.0"}},
	{"GPL", []string{"gnu general public license"}},
	{"LGPL", []string{"gnu lesser general public license"}},
	{"AGPL", []string{"gnu affero general public license"}},
	{"BUSL-1.1", []string{"business source license"}},
	{"SSPL-1.0", []string{"server side public license"}},
	{"EPL", []string{"eclipse public license"}},
	{"CC-BY", []string{"creative commons attribution"}},
	{"Unlicense", []string{"this is free and unencumbered software released into the public domain"}},
}

// classify returns the licences whose text it finds.
func classify(text string) (ids []string) {
	var words []string
	for line := range strings.Lines(text) {
		words = append(words, strings.Fields(strings.TrimLeft(line, "/#* \t"))...)
	}
	text = strings.ToLower(strings.Join(words, " "))
	for _, s := range signatures {
		if slices.ContainsFunc(s.words, func(w string) bool { return strings.Contains(text, w) }) {
			ids = append(ids, s.id)
		}
	}
	if strings.Contains(text, "redistribution and use in source and binary forms") {
		if strings.Contains(text, "may be used to endorse or promote products") {
			ids = append(ids, "BSD-3-Clause")
		} else {
			ids = append(ids, "BSD-2-Clause")
		}
	}
	slices.Sort(ids)
	return ids
}

// licencesIn reads the licence files at the top of a module.
func licencesIn(module, dir string) (ids, unknown []string, err error) {
	if dir == "" {
		return nil, nil, os.ErrNotExist
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		name := strings.ToUpper(e.Name())
		if e.IsDir() || strings.HasSuffix(name, ".GO") || !strings.HasPrefix(name, "LICEN") && !strings.HasPrefix(name, "COPYING") && !strings.HasPrefix(name, "UNLICENSE") ||
			ignoredFiles[module+" "+e.Name()] != "" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, nil, err
		}
		found := classify(string(text))
		if len(found) == 0 {
			unknown = append(unknown, e.Name())
		}
		ids = append(ids, found...)
	}
	slices.Sort(ids)
	return slices.Compact(ids), unknown, nil
}
