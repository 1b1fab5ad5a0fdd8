// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/dialect"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store/sqlite"
)

// expiredRecipe has many events, so that retention has chunks to remove.
const expiredRecipe = `name: aged
steps:
  - id: all
    loop:
      over: "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"
      as: n
      steps: [{id: one, transform: {expression: n}}]
outputs: {all: steps.all.output}
`

// makeExpired fills a data directory with runs and files that are two days old, so
// that retention has something to remove. The clock of the machine cannot be changed
// for one process, but the engine's can.
func makeExpired(ctx context.Context, dir string, runs int) (err error) {
	past := func() time.Time { return time.Now().Add(-48 * time.Hour) }
	st, err := sqlite.Open(ctx, sqlite.Options{Dir: dir})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	files, err := blob.Open(blob.Config{Dir: filepath.Join(dir, "files"), Now: past})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, files.Close()) }()
	e, err := engine.Open(ctx, engine.Config{Store: st, Blobs: files, Now: past})
	if err != nil {
		return err
	}
	defer func() {
		_, serr := e.Stop(ctx)
		err = errors.Join(err, serr)
	}()
	r, sources, _ := dialect.Parse("aged.yaml", []byte(expiredRecipe), form.Options{})
	p, diags := compile.Compile(r, sources, compile.Options{Actions: catalogue.New()})
	if p == nil {
		return fmt.Errorf("aged.yaml: %v", diags)
	}
	for i := range runs {
		info, err := files.Put(ctx, account, strings.NewReader(fmt.Sprintf("a file of run %d\n", i)), "old.txt", "")
		if err != nil {
			return err
		}
		if _, err := files.Put(ctx, account, strings.NewReader(fmt.Sprintf("nobody's file %d\n", i)), "loose.txt", ""); err != nil {
			return err
		}
		started, err := e.Start(ctx, engine.StartRequest{
			Account: account, Plan: p, Recipe: "aged",
			Files: []journal.File{{Hash: info.Hash, Name: info.Name, MimeType: info.MimeType, Size: info.Size}},
		})
		if err != nil {
			return err
		}
		if _, err := e.Wait(ctx, account, started.Run); err != nil {
			return err
		}
	}
	return nil
}

// account is the account of command line runs.
const account = "local"
