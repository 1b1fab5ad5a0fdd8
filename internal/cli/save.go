// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/remote"
	"github.com/roux-engine/roux/internal/userfile"
	"github.com/roux-engine/roux/internal/view"
)

// A saved is a file of a run that was written into a directory of the user.
type saved struct {
	Hash string `json:"hash"`
	Path string `json:"path"`
	Done string `json:"done"` // written or unchanged
}

// canSave reports why files cannot be written into a directory of the user, or nil; "" is
// none. An error before a run is better than one after an hour of work.
func canSave(dir string) error {
	if dir == "" {
		return nil
	}
	p, err := userfile.OpenDir(dir)
	if err == nil {
		p.Close()
	}
	return err
}

// saveOutputs writes the files that the outputs of a run name into a directory,
// under their names in the run, else those in the store. It never overwrites a
// file: one with other content gets a number after its name.
func (a *app) saveOutputs(ctx context.Context, files remote.Files, v *view.Run, dir string) ([]saved, error) {
	outputs := view.Decoded(v.Outputs)
	var hashes []string
	seen := map[string]bool{}
	eachHash(outputs, func(hash string) {
		if !seen[hash] {
			seen[hash] = true
			hashes = append(hashes, hash)
		}
	})
	if len(hashes) == 0 {
		return nil, nil
	}
	p, err := userfile.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	names := fileNames(v, outputs)
	var list []saved
	for _, hash := range hashes {
		wanted := names[hash]
		if len(wanted) == 0 {
			wanted = []string{""}
		}
		for _, name := range wanted {
			s, err := a.saveOutput(ctx, files, hash, name, p)
			if errors.Is(err, fault.FileNotFound) {
				break // the hash is data and not a file of this run
			}
			if err != nil {
				return list, err
			}
			list = append(list, s)
		}
	}
	return list, nil
}

// fileNames returns the names of files by hash. A name comes from an object that has
// exactly one hash and a name. Objects in the outputs of the run count first; if there
// are none for a hash, those in the outputs of its steps; otherwise the file has its
// name as an input. Files of equal content share a hash, which has at most as many
// names as it occurs in the outputs.
func fileNames(v *view.Run, outputs any) map[string][]string {
	names, times := map[string][]string{}, map[string]int{}
	eachHash(outputs, func(hash string) { times[hash]++ })
	note := func(hash, name string) {
		if len(names[hash]) < times[hash] && !slices.Contains(names[hash], name) {
			names[hash] = append(names[hash], name)
		}
	}
	namesIn(outputs, note)
	done := maps.Clone(names)
	steps, order := v.History.Steps()
	for _, path := range order {
		namesIn(view.Decoded(steps[path].Output), func(hash, name string) {
			if done[hash] == nil {
				note(hash, name)
			}
		})
	}
	for _, f := range v.Files {
		if names[f.Hash] == nil {
			note(f.Hash, f.Name)
		}
	}
	return names
}

// namesIn calls fn for each object that has the hash of one file and a name.
func namesIn(v any, fn func(hash, name string)) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			namesIn(e, fn)
		}
	case map[string]any:
		hash, hashes := "", 0
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if text, ok := v[k].(string); ok && blob.ValidHash(text) {
				hash = text
				hashes++
			}
			namesIn(v[k], fn)
		}
		if name, ok := v["name"].(string); ok && hashes == 1 && name != "" {
			fn(hash, name)
		}
	}
}

// eachHash calls fn for each hash in a value, in order.
func eachHash(v any, fn func(hash string)) {
	switch v := v.(type) {
	case string:
		if blob.ValidHash(v) {
			fn(v)
		}
	case []any:
		for _, e := range v {
			eachHash(e, fn)
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			eachHash(v[k], fn)
		}
	}
}

func (a *app) saveOutput(ctx context.Context, files remote.Files, hash, name string, p *userfile.Dir) (saved, error) {
	kept, err := files.FindFile(ctx, hash)
	if err != nil {
		return saved{}, err
	}
	name = userfile.SafeName(cmp.Or(name, kept.Info.Name), hash)
	ext := path.Ext(name)
	stem := strings.TrimSuffix(name, ext)
	for n := 2; ; n++ {
		same, err := p.Holds(name, hash)
		if err != nil {
			return saved{}, err
		}
		if same {
			return saved{hash, p.Name(name), userfile.Unchanged}, nil
		}
		if !p.Exists(name) {
			break
		}
		name = fmt.Sprintf("%s-%d%s", stem, n, ext)
	}
	f, err := files.ReadFile(ctx, hash, 0, -1)
	if err != nil {
		return saved{}, err
	}
	defer f.Close()
	path, err := userfile.Save(f, filepath.Join(p.Path, name), name, hash, false)
	return saved{hash, path, userfile.Written}, err
}
