// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/backup"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/term"
	"github.com/roux-engine/roux/internal/view"
)

// A backupView is a backup in the output of commands. Its fields only grow.
type backupView struct {
	ID string `json:"id"`
	backup.Found
	Problems []string `json:"problems,omitempty"`
}

func (a *app) backupCommand() *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use:   "backup",
		Short: "Copy the data directory, also while runs go on in it",
		Long: "Copy the data directory, also while another command or a program that embeds Roux runs in it: that process then makes the copy, and its runs go on. " +
			"Everything that was acknowledged before is in the backup. A backup is complete or not there at all. Backups in one directory share files: " +
			"one that is there already is not copied again.\n\n" +
			"Settings and recipes are not part of a data directory.",
		Example: "roux backup --to /mnt/backups\nroux backup verify /mnt/backups\nroux restore /mnt/backups --data restored",
		Args:    wants(0, 0, "[--to DIR] | verify PATH | list DIR | prune DIR --keep N"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.interruptible(cmd.Context(), func(ctx context.Context) error { return a.backup(ctx, to) })
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "directory for backups (default: the data directory's name with -backups at its end)")
	cmd.AddCommand(a.backupVerify(), a.backupList(), a.backupPrune())
	return cmd
}

// interruptible calls fn with a context that a signal ends. fn leaves nothing half made.
func (a *app) interruptible(ctx context.Context, fn func(context.Context) error) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := fn(ctx)
	if err != nil && ctx.Err() != nil && !waited(ctx) {
		a.say("interrupted; nothing is left half made")
		return exit(fault.ExitInterrupted)
	}
	return err
}

func (a *app) backup(ctx context.Context, to string) error {
	dir, err := a.config.DataDir()
	if err != nil {
		return err
	}
	if err := datadir.MustExist(dir); err != nil {
		return err
	}
	if to == "" {
		to = filepath.Clean(dir) + "-backups"
		a.say("the backup goes to %s, beside the data directory; --to names another disk", to)
	}
	if to, err = filepath.Abs(to); err != nil {
		return fault.New(fault.Usage, "--to %q: want a directory", to)
	}
	p := a.backupProgress()
	m, err := a.makeBackup(ctx, dir, to, p.show)
	p.end()
	if err != nil {
		return err
	}
	a.showBackup(m, filepath.Join(to, m.ID), nil)
	if len(m.Damaged) > 0 {
		a.say("%s damaged in the data directory and not in the backup, the first is %s: `%s` says more", view.CountAre(len(m.Damaged), "file"), m.Damaged[0], a.hint("doctor", ""))
		return exit(fault.ExitFailed)
	}
	return nil
}

// makeBackup has the process that holds the data directory make a backup, or makes it here.
func (a *app) makeBackup(ctx context.Context, dir, to string, progress func(backup.Progress)) (*backup.Manifest, error) {
	for try := 0; ; try++ {
		if r := a.dial(ctx, dir); r != nil {
			a.log.Debug("the process that holds the data directory makes the backup", "dir", dir)
			m, err := r.Backup(ctx, to, progress)
			if errors.Is(err, fault.ServerUnreachable) && try == 0 && ctx.Err() == nil && a.dial(ctx, dir) == nil {
				continue // that process has ended
			}
			return m, err
		}
		st, err := a.openStore(ctx, dir)
		if errors.Is(err, fault.StoreLocked) && try == 0 {
			continue // a process may have begun to listen since
		}
		if err != nil {
			return nil, err
		}
		files, err := blob.Open(blob.Config{Dir: filepath.Join(dir, datadir.Files)})
		if err != nil {
			return nil, errors.Join(datadir.Error(dir, err), st.Close())
		}
		m, err := backup.Create(ctx, backup.Source{Dir: dir, Store: st, Files: files, Version: thisBuild().short(), Now: a.now}, to, progress)
		return m, errors.Join(err, files.Close(), datadir.Error(dir, st.Close()))
	}
}

func (a *app) showBackup(m *backup.Manifest, path string, problems []string) {
	v := backupView{ID: m.ID, Found: backup.Found{Manifest: m, Path: path}, Problems: problems}
	a.show(v, func() {
		a.text("%s\n", path)
		a.text("  %s and %s, %s\n", view.Count(int(m.Runs), "run"), view.Count(m.Files, "file"), term.Size(m.Database.Size+m.FileBytes))
	})
}

func (a *app) backupVerify() *cobra.Command {
	return &cobra.Command{
		Use:   "verify PATH",
		Short: "Read a backup and compare it with what was recorded",
		Long: "Read everything that belongs to a backup and compare it with the checksums that were recorded. PATH is a backup, or a directory of backups, of which the newest " +
			"is verified. The exit code is 1 when something is wrong.",
		Example: "roux backup verify /mnt/backups\nroux backup verify /mnt/backups/20261126T193520.123Z -o json",
		Args:    wants(1, 1, "PATH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.interruptible(cmd.Context(), func(ctx context.Context) error {
				p := a.backupProgress()
				m, problems, err := backup.Verify(ctx, args[0], p.show)
				p.end()
				if err != nil {
					return err
				}
				path := args[0]
				if filepath.Base(path) != m.ID {
					path = filepath.Join(path, m.ID)
				}
				a.showBackup(m, path, problems)
				for _, text := range problems {
					a.say("%s", view.OneLine(text))
				}
				if len(problems) > 0 {
					return exit(fault.ExitFailed)
				}
				a.say("everything is as it was written")
				return nil
			})
		},
	}
}

func (a *app) backupList() *cobra.Command {
	return &cobra.Command{
		Use:     "list DIR",
		Aliases: []string{"ls"},
		Short:   "List the backups in a directory, the oldest first",
		Example: "roux backup list /mnt/backups\nroux backup list /mnt/backups -o name",
		Args:    wants(1, 1, "DIR"),
		RunE: func(_ *cobra.Command, args []string) error {
			found, err := backup.List(args[0])
			if err != nil {
				return err
			}
			views := make([]backupView, len(found))
			rows := [][]string{{"BACKUP", "MADE", "RUNS", "FILES", "SIZE", "OF"}}
			for i, f := range found {
				views[i] = backupView{ID: f.ID, Found: f}
				if f.Problem != "" {
					rows = append(rows, []string{f.ID, view.OneLine(f.Problem)})
					continue
				}
				rows = append(rows, []string{f.ID, a.when(f.CreatedAt.UnixMicro()), strconv.FormatInt(f.Runs, 10), strconv.Itoa(f.Files), term.Size(f.Database.Size + f.FileBytes), view.OneLine(f.Source)})
			}
			a.show(views, func() {
				if len(found) == 0 {
					a.say("there is no backup in %s", args[0])
					return
				}
				a.text("%s", term.Table(rows))
			})
			return nil
		},
	}
}

func (a *app) backupPrune() *cobra.Command {
	var keep int
	cmd := &cobra.Command{
		Use:     "prune DIR --keep N",
		Short:   "Remove all backups in a directory but the newest N",
		Long:    "Remove all backups in a directory but the newest N, and the files that no backup has any more.",
		Example: "roux backup prune /mnt/backups --keep 14",
		Args:    wants(1, 1, "DIR --keep N"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.interruptible(cmd.Context(), func(ctx context.Context) error {
				out, err := backup.Prune(ctx, args[0], keep)
				if err != nil {
					return err
				}
				a.show(out, func() {
					a.text("removed %s and %s (%s); %s kept\n", view.Count(len(out.Backups), "backup"), view.Count(out.Files, "file"), term.Size(out.Bytes), view.CountAre(out.Kept, "backup"))
				})
				return nil
			})
		},
	}
	cmd.Flags().IntVar(&keep, "keep", 0, "how many backups stay, the newest")
	return cmd
}

func (a *app) restoreCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "restore BACKUP --data DIR",
		Short: "Make a data directory of a backup",
		Long: "Make a data directory of a backup. BACKUP is one backup, or a directory of backups, of which the newest is taken. All of it is verified before anything is written, " +
			"and DIR must be empty or not exist.\n\n" +
			"Runs go on with `roux resume` where they were when the backup was made. Never let them go on in the original as well: both would do the same work, under the same effect keys.",
		Example: "roux restore /mnt/backups --data restored\nroux restore /mnt/backups/20261126T193520.123Z --data restored && roux doctor --data restored",
		Args:    wants(1, 1, "BACKUP --data DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.interruptible(cmd.Context(), func(ctx context.Context) error {
				dir, err := a.config.DataDir()
				if err != nil {
					return err
				}
				p := a.backupProgress()
				m, err := backup.Restore(ctx, args[0], dir, p.show)
				p.end()
				if err != nil {
					return err
				}
				a.show(backupView{ID: m.ID, Found: backup.Found{Manifest: m, Path: dir}}, func() {
					a.text("restored %s and %s of %s into %s\n", view.Count(int(m.Runs), "run"), view.Count(m.Files, "file"), view.Stamp(m.CreatedAt.UnixMicro()), dir)
				})
				if a.dial(ctx, m.Source) != nil {
					a.say("the original, %s, is in use: end that process before runs go on here, or the same work is done twice", m.Source)
				}
				a.say("`%s` checks it; `%s` goes on with its runs", a.hint("doctor", ""), a.hint("resume", ""))
				return nil
			})
		},
	}
}

// A backupProgress draws how far a backup is, if it takes long and standard error is a
// terminal, and otherwise says now and then that it goes on.
type backupProgress struct {
	a     *app
	drawn time.Time
	shown bool
}

// The time between two messages about progress.
const (
	drawEvery = 100 * time.Millisecond
	sayEvery  = 10 * time.Second
)

func (a *app) backupProgress() *backupProgress { return &backupProgress{a: a, drawn: a.now()} }

func (p *backupProgress) show(at backup.Progress) {
	live := p.a.screen.Live()
	every := sayEvery
	if live {
		every = drawEvery
	}
	now := p.a.now()
	if p.a.quiet || at.What == "" || now.Sub(p.drawn) < every {
		return
	}
	p.drawn = now
	text := at.What
	switch {
	case at.Total > 0:
		text += fmt.Sprintf("  %d %%", min(100*at.Done/at.Total, 100))
	case at.Done > 0:
		text += "  " + term.Size(at.Done)
	}
	if live {
		p.shown = true
		p.a.screen.Print("\r\x1b[K" + text)
		return
	}
	p.a.say("%s", text)
}

func (p *backupProgress) end() {
	if p.shown {
		p.a.screen.Print("\r\x1b[K")
	}
}
