// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/remote"
	"github.com/roux-engine/roux/internal/retention"
	"github.com/roux-engine/roux/internal/term"
	"github.com/roux-engine/roux/internal/userfile"
	"github.com/roux-engine/roux/internal/view"
)

func (a *app) filesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "files",
		Short: "Store, list and fetch files",
		Long: "Store, list and fetch files. A file is named by the SHA-256 of its content; any beginning of the hash that only one file has " +
			"names it, with or without sha256_. Files that no run names are kept for a day after their last use, others for a week after the last run " +
			"that names them has ended (`roux config list`).",
		Example: `roux files put report.pdf photo.jpg
roux files ls --type 'image/*'
roux files get 1f3a2b -O report.pdf`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(a.filesPut(), a.filesGet(), a.filesList(), a.filesInspect(), a.filesRemove(), a.filesSweep())
	return cmd
}

// A fileView is a file in the output of commands. Its fields only grow.
type fileView struct {
	ID       string          `json:"id"` // the hash
	Hash     string          `json:"hash"`
	Name     string          `json:"name"`
	MimeType string          `json:"mimeType"`
	Size     int64           `json:"sizeBytes"`
	StoredAt string          `json:"storedAt,omitempty"`
	Extended json.RawMessage `json:"extended,omitempty"`
	Runs     []string        `json:"runs,omitempty"`
}

func viewOfFile(info action.FileInfo, stored time.Time) fileView {
	v := fileView{ID: info.Hash, Hash: info.Hash, Name: info.Name, MimeType: info.MimeType, Size: info.Size, Extended: info.Extended}
	if !stored.IsZero() {
		v.StoredAt = view.Stamp(stored.UnixMicro())
	}
	return v
}

func (a *app) filesPut() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "put FILE…",
		Short: "Store files and show what they are",
		Long:  "Store files and show what they are. - is standard input. The same content is kept once, under the name it came with first.",
		Example: `roux files put report.pdf scans/*.jpg
curl -s https://example.com/report.pdf | roux files put - --name report.pdf
roux run recipe.yaml --file "$(roux files put report.pdf -o name)"`,
		Args: wants(1, -1, "FILE…"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if name != "" && len(args) > 1 {
				return fault.New(fault.Usage, "--name is for one file, and there are %d", len(args))
			}
			if n := len(slices.DeleteFunc(slices.Clone(args), func(p string) bool { return p != "-" })); n > 1 {
				return fault.New(fault.Usage, "standard input can be read once, and - is there %d times", n)
			}
			for _, path := range args { // before anything is stored
				if path == "-" {
					continue
				}
				f, _, err := userfile.OpenRegular(path)
				if err != nil {
					return err
				}
				_ = f.Close()
			}
			out := a.stream()
			err := a.filing(cmd.Context(), true, func(ctx context.Context, s remote.Files) error {
				for _, path := range args {
					info, err := a.putOne(ctx, s, path, name)
					if err != nil {
						return err
					}
					v := viewOfFile(info, time.Time{})
					if a.output == asTable {
						a.text("%s\n", fileLine(v))
					}
					out.add(v)
				}
				return nil
			})
			out.end()
			return err
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "keep the file under this name (default: its own)")
	return cmd
}

// putOne stores one file and shows progress for a large one.
func (a *app) putOne(ctx context.Context, s remote.Files, path, name string) (action.FileInfo, error) {
	if path == "-" {
		p := a.progress(a.stdin, name, -1)
		defer p.End()
		return s.PutFile(ctx, p, name)
	}
	f, size, err := userfile.OpenRegular(path)
	if err != nil {
		return action.FileInfo{}, err
	}
	defer func() { _ = f.Close() }()
	if name == "" {
		name = filepath.Base(path)
	}
	if size == 0 {
		a.say("%s is empty (0 bytes)", view.OneLine(path))
	}
	p := a.progress(f, name, size)
	defer p.End()
	info, err := s.PutFile(ctx, p, name)
	if p.Err() != nil {
		return info, userfile.OpenError(path, fault.FileNotFound, p.Err())
	}
	return info, err
}

// fileLine formats a file as one line: hash, type, size, name, and what inspection
// found.
func fileLine(v fileView) string {
	words := []string{v.Hash, v.MimeType, term.Size(v.Size)}
	if v.Name != "" {
		words = append(words, view.OneLine(view.Cut(v.Name, 80)))
	}
	line := strings.Join(words, "  ")
	if facts := factsText(v.Extended); facts != "" {
		line += "  " + facts
	}
	return line
}

// factsText formats what inspection found.
func factsText(raw json.RawMessage) string {
	var fields map[string]any
	if json.Unmarshal(raw, &fields) != nil {
		return ""
	}
	var words []string
	w, h := fields["width"], fields["height"]
	if fields["shownWidth"] != nil && fields["shownHeight"] != nil { // as it looks, turned upright
		w, h = fields["shownWidth"], fields["shownHeight"]
	}
	if w != nil && h != nil {
		words = append(words, fmt.Sprintf("%v × %v", w, h))
	}
	if n, ok := fields["pageCount"].(float64); ok {
		words = append(words, view.Count(int(n), "page"))
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		switch v := fields[name].(type) {
		case float64:
			usual := name == "orientation" && v == 1
			if !usual && !slices.Contains([]string{"pageCount", "width", "height", "shownWidth", "shownHeight"}, name) {
				words = append(words, fmt.Sprintf("%s %v", name, v))
			}
		case string:
			words = append(words, fmt.Sprintf("%s %s", name, view.OneLine(view.Cut(v, 60))))
		case bool:
			if v {
				words = append(words, name)
			}
		case map[string]any:
			if name == "problem" {
				words = append(words, fmt.Sprintf("%v: %s", v["code"], view.OneLine(fmt.Sprint(v["message"]))))
			}
		}
	}
	return strings.Join(words, ", ")
}

func (a *app) filesList() *cobra.Command {
	var q blob.Query
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List files, the last used first",
		Example: `roux files ls
roux files ls --type 'image/*' --name holiday --limit 10`,
		Args: wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if q.Limit < 1 || q.Limit > 10_000 {
				return fault.New(fault.Usage, "--limit %d: want 1 to 10000", q.Limit)
			}
			return a.filing(cmd.Context(), false, func(ctx context.Context, s remote.Files) error {
				found, err := s.ListFiles(ctx, q)
				if err != nil {
					return err
				}
				a.printFiles(found)
				return nil
			})
		},
	}
	cmd.Flags().IntVar(&q.Limit, "limit", 50, "at most this many")
	cmd.Flags().StringVar(&q.Name, "name", "", "only files with this in their name")
	cmd.Flags().StringVar(&q.Type, "type", "", "only files of this MIME type, such as application/pdf or 'image/*'")
	return cmd
}

// shortHash is the length of a hash in a list. Among a million files two share 12
// digits in one of 500 stores.
const shortHash = len("sha256_") + 12

func (a *app) printFiles(found []blob.Entry) {
	views := make([]fileView, len(found))
	for i, e := range found {
		views[i] = viewOfFile(e.Info, e.Stored)
	}
	a.show(views, func() {
		if len(found) == 0 {
			a.say("no such files here: `roux files put FILE` keeps one")
			return
		}
		rows := [][]string{{"FILE", "TYPE", "SIZE", "USED", "NAME", ""}}
		for i, v := range views {
			rows = append(rows, []string{v.Hash[:shortHash], v.MimeType, term.Size(v.Size), a.when(found[i].Stored.UnixMicro()),
				view.OneLine(view.Cut(v.Name, 40)), view.Cut(factsText(v.Extended), 60)})
		}
		a.table(rows, 5, 4)
	})
}

func (a *app) filesInspect() *cobra.Command {
	return &cobra.Command{
		Use:   "inspect HASH",
		Short: "Show everything that is known about a file",
		Long:  "Show everything that is known about a file: what was found when it was stored, and which runs name it.",
		Example: `roux files inspect 1f3a2b
roux files inspect sha256_1f3a2b -o 'template={{ extended.pageCount }}'`,
		Args: wants(1, 1, "HASH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.filing(cmd.Context(), false, func(ctx context.Context, s remote.Files) error {
				f, err := s.FindFile(ctx, args[0])
				if err != nil {
					return err
				}
				v := viewOfFile(f.Info, f.Stored)
				v.Runs = f.Runs
				a.show(v, func() { a.printFile(v, f.Stored) })
				return nil
			})
		},
	}
}

func (a *app) printFile(v fileView, stored time.Time) {
	rows := [][]string{{"hash", v.Hash}, {"name", view.OneLine(v.Name)}, {"type", v.MimeType},
		{"size", fmt.Sprintf("%s (%d bytes)", term.Size(v.Size), v.Size)}, {"used", a.exact(stored.UnixMicro())}}
	var fields map[string]json.RawMessage
	if json.Unmarshal(v.Extended, &fields) == nil {
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			text := string(fields[name])
			var s string
			var p errorObject
			switch {
			case json.Unmarshal(fields[name], &s) == nil:
				text = s
			case name == "problem" && json.Unmarshal(fields[name], &p) == nil:
				text = fmt.Sprintf("%s: %s", p.Code, p.Message)
			}
			rows = append(rows, []string{view.OneLine(name), view.OneLine(text)})
		}
	}
	for i, run := range v.Runs {
		label := "runs"
		if i > 0 {
			label = ""
		}
		rows = append(rows, []string{label, view.OneLine(run)})
	}
	a.sheet(rows)
	if len(v.Runs) == remote.MaxRuns {
		a.say("there may be more runs that name it")
	}
}

func (a *app) filesRemove() *cobra.Command {
	return &cobra.Command{
		Use:     "rm HASH…",
		Short:   "Remove files that no run names",
		Example: "roux files rm 1f3a2b",
		Args:    wants(1, -1, "HASH…"),
		RunE: func(cmd *cobra.Command, args []string) error {
			out := a.stream()
			err := a.filing(cmd.Context(), false, func(ctx context.Context, s remote.Files) error {
				for _, arg := range args {
					f, err := s.FindFile(ctx, arg)
					if err != nil {
						return err
					}
					if err := s.RemoveFile(ctx, f.Info.Hash); err != nil {
						return err
					}
					out.add(viewOfFile(f.Info, f.Stored))
					a.say("removed %s %s", f.Info.Hash[:shortHash], view.OneLine(view.Cut(f.Info.Name, 80)))
				}
				return nil
			})
			out.end()
			return err
		},
	}
}

func (a *app) filesSweep() *cobra.Command {
	var dry bool
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Delete runs and files whose retention has passed",
		Long: "Delete runs and files whose retention has passed. Roux does this by itself, a little each hour; retain.runs, retain.files and " +
			"retain.uploads say how long things are kept.",
		Example: `roux files gc --dry-run
roux files gc`,
		Args: wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.filing(cmd.Context(), false, func(ctx context.Context, s remote.Files) error {
				removed, err := s.CleanFiles(ctx, dry)
				if err != nil {
					return err
				}
				a.show(removed, func() { a.printRemoved(removed, dry) })
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "show what would be deleted, and keep it")
	return cmd
}

func (a *app) printRemoved(s retention.Removed, dry bool) {
	verb := "removed"
	if dry {
		verb = "would remove"
	}
	for _, run := range s.RunIDs {
		a.text("run   %s\n", view.OneLine(run))
	}
	for _, hash := range s.Hashes {
		a.text("file  %s\n", view.OneLine(hash))
	}
	a.say("%s %s and %s of %s", verb, view.Count(s.Runs, "run"), view.Count(s.Files, "file"), term.Size(s.Bytes))
}

// progress reads from r and draws on standard error how far it is.
func (a *app) progress(r io.Reader, name string, size int64) *term.Progress {
	screen := a.screen
	if a.quiet {
		screen = nil
	}
	return term.NewProgress(r, screen, a.now, name, size)
}
