// SPDX-License-Identifier: Apache-2.0

package recipetest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/registry"
	"github.com/roux-engine/roux/internal/userfile"
)

// The bounds of a search for test files.
const (
	maxFound   = 10_000
	maxEntries = 200_000
)

// Find returns the test files among files and in directories, with all below these, sorted. In a
// directory they are told by their names, or in a directory tests by their content. A file that
// is a recipe stands for the test files of it in its directory and below that.
func Find(paths []string) (files []string, err error) {
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, userfile.OpenError(path, fault.FileNotFound, err)
		}
		found := []string{path}
		switch {
		case info.IsDir():
			found, err = walk(path, nil)
		case !registry.IsTest(path) && !isTest(path):
			found, err = walk(filepath.Dir(path), func(file string) bool { return recipeOf(file) == filepath.Clean(path) })
			if err == nil && len(found) == 0 {
				err = fault.New(fault.FileNotFound, "%s is a recipe, and no test file in %s is of it: `roux help test` says how one is written", path, filepath.Dir(path))
			}
		}
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	slices.Sort(files)
	return slices.Compact(files), nil
}

// isTest reports whether a file is a test file by its content.
func isTest(file string) bool {
	text, err := readTest(file)
	return err == nil && Is(file, text)
}

// recipeOf is the file of the recipe that a test file names; "" if it cannot be read.
func recipeOf(file string) string {
	text, err := readTest(file)
	if err != nil {
		return ""
	}
	tree, _ := form.Read(file, text, form.Options{MaxBytes: MaxSource})
	if tree == nil {
		return ""
	}
	name := form.Unwrapped(tree).Child("recipe")
	if name == nil || name.Text == "" {
		return ""
	}
	return filepath.Join(filepath.Dir(file), filepath.FromSlash(name.Text))
}

// walk returns the test files in a directory and below, those that are wanted.
func walk(dir string, wanted func(file string) bool) (files []string, err error) {
	seen := 0
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			if path != dir && errors.Is(err, fs.ErrPermission) {
				return nil
			}
			return userfile.OpenError(path, fault.FileNotFound, err)
		}
		if seen++; seen > maxEntries {
			return fault.New(fault.Usage, "%s has more than %d entries: name a directory below it", dir, maxEntries)
		}
		name := e.Name()
		if e.IsDir() {
			if path != dir && (strings.HasPrefix(name, ".") || name == "node_modules") {
				return fs.SkipDir
			}
			return nil
		}
		if !e.Type().IsRegular() || !registry.IsTest(path) && (filepath.Base(filepath.Dir(path)) != "tests" || !isText(name) || !isTest(path)) {
			return nil
		}
		if wanted != nil && !wanted(path) {
			return nil
		}
		if files = append(files, path); len(files) > maxFound {
			return fault.New(fault.Usage, "%s has more than %d test files: name a directory below it", dir, maxFound)
		}
		return nil
	})
	return files, err
}

func isText(name string) bool {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// Run runs the tests of files, several at once, and calls each with every file in the order of
// their names when its tests have ended. It ends with the error of ctx if that has one.
func Run(ctx context.Context, files []string, cfg Config, each func(*File)) error {
	type done struct {
		file *File
		err  error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cfg.slots = make(chan struct{}, max(1, cfg.Parallel))
	// One more file than tests may be read at once, so that the next is ready.
	reading := make(chan struct{}, cap(cfg.slots)+1)
	results := make([]chan done, len(files))
	for i := range files {
		results[i] = make(chan done, 1)
	}
	go func() {
		for i, file := range files {
			reading <- struct{}{}
			go func() {
				f, err := RunFile(ctx, file, cfg)
				results[i] <- done{f, err}
				<-reading
			}()
		}
	}()
	var failed error
	for i := range files {
		switch d := <-results[i]; {
		case failed != nil: // its temporary files are removed
		case d.err != nil:
			failed = d.err
			cancel()
		default:
			each(d.file)
		}
	}
	return failed
}
