// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/remote"
	"github.com/roux-engine/roux/internal/term"
	"github.com/roux-engine/roux/internal/userfile"
	"github.com/roux-engine/roux/internal/view"
)

// An inputFile is one input file of a run: an open file of the user, or the
// beginning of the hash of a stored one.
type inputFile struct {
	path string
	f    *os.File
	hash string
}

// openInputs opens the files that --file names, before the data directory is
// touched, so that a misspelt path leaves nothing behind. The caller closes them.
func (a *app) openInputs(args []string) (list []inputFile, err error) {
	defer func() {
		if err != nil {
			closeInputs(list)
		}
	}()
	for _, arg := range args {
		if _, err := os.Lstat(arg); err != nil && hashLike(arg) {
			list = append(list, inputFile{hash: arg})
			continue
		}
		paths, err := userfile.Expand([]string{arg}, a.say)
		if err != nil {
			return list, err
		}
		for _, path := range paths {
			f, size, err := userfile.OpenRegular(path)
			if path != arg && errors.Is(err, fs.ErrPermission) {
				a.say("%s may not be read and is left out", view.OneLine(path))
				continue
			}
			if err != nil {
				return list, err
			}
			list = append(list, inputFile{path: path, f: f})
			if size == 0 && path != arg {
				// One bad file must not keep the others from being processed. The step
				// that reads it fails, and the recipe decides what follows.
				a.say("%s is empty (0 bytes); a step that needs its content fails", view.OneLine(path))
				continue
			}
			if size == 0 {
				return list, fault.New(fault.FileInvalid, "%s is empty (0 bytes): there is nothing to work on; `roux files put %s` keeps it all the same, and --file takes its hash",
					path, term.ShellQuote(path))
			}
		}
	}
	return list, nil
}

// readsFiles reports whether a plan uses the files of the run: a step reads the
// only one, or an expression names them.
func readsFiles(p *plan.Plan) bool {
	named := func(vars []plan.Var) bool {
		return slices.ContainsFunc(vars, func(v plan.Var) bool { return v.Name == "files" || v.Name == "fileHashes" })
	}
	for i := range p.Steps {
		st := &p.Steps[i]
		if st.FileInput != "" || st.Expr != nil && named(st.Expr.Vars) || named(st.InputVars()) {
			return true
		}
	}
	return false
}

func closeInputs(list []inputFile) {
	for _, g := range list {
		if g.f != nil {
			_ = g.f.Close()
		}
	}
}

// hashLike reports whether a word may be the beginning of a hash.
func hashLike(s string) bool {
	digits, marked := strings.CutPrefix(s, "sha256_")
	return strings.Trim(digits, "0123456789abcdefABCDEF") == "" && len(digits) <= 64 && (marked && digits != "" || len(digits) >= 6)
}

// inDir is datadir.Error for the data directory of the command.
func (a *app) inDir(err error) error {
	dir, derr := a.config.DataDir()
	if derr != nil {
		return err
	}
	return datadir.Error(dir, err)
}

// storeInputs stores the input files and finds those that are stored already.
func (a *app) storeInputs(ctx context.Context, files remote.Files, list []inputFile) ([]action.FileInfo, error) {
	infos := make([]action.FileInfo, len(list))
	for i, g := range list {
		if g.f == nil {
			kept, err := files.FindFile(ctx, g.hash)
			if errors.Is(err, fault.FileNotFound) {
				err = fault.New(fault.FileNotFound, "%s: no such path, and no file is kept whose hash begins so; `%s` lists those that are", view.OneLine(g.hash), a.hint("files ls", ""))
			}
			if err != nil {
				return nil, err
			}
			infos[i] = kept.Info
			continue
		}
		size := int64(-1)
		if info, err := g.f.Stat(); err == nil {
			size = info.Size()
		}
		p := a.progress(g.f, filepath.Base(g.path), size)
		var err error
		infos[i], err = files.PutFile(ctx, p, filepath.Base(g.path))
		p.End()
		if p.Err() != nil {
			err = userfile.OpenError(g.path, fault.FileNotFound, p.Err())
		}
		if err != nil {
			return nil, a.inDir(err)
		}
		// The store keeps equal content once, under its first name. In this run each
		// copy has its own name.
		if name := blob.CleanName(filepath.Base(g.path)); name != "" {
			infos[i].Name = name
		}
	}
	return infos, nil
}
