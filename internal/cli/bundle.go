// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

// A bundle is a ZIP file that holds one run: manifest.json, plan.json, the
// journal as it is stored (journal.bin) and, for people and other programs, as
// public events (events.jsonl), which import does not read.
const (
	bundleFormat  = "roux-run"
	bundleVersion = 2
	// unhashedVersion is that of earlier releases, without checksums.
	unhashedVersion = 1
	bundleExt       = ".roux.zip"

	// What a bundle may hold, unpacked.
	maxBundlePlan     = 64 << 20
	maxBundleJournal  = 256 << 20
	maxBundleEvents   = 1 << 30
	maxBundleManifest = 64 << 10
	// What is read to list its members, which are few: the end of the file is read
	// twice where a longer comment could stand.
	maxBundleListing = 256 << 10

	// A member that unpacks to more than bombBytes and bombRatio times its size
	// is stored as it is by export, and refused by import.
	bombBytes = 8 << 20
	bombRatio = 200

	// sealBytes is the length of the comment that ends a bundle: the SHA-256 of
	// all bytes before it, in hexadecimal.
	sealBytes = 2 * sha256.Size
)

// A manifest says what a bundle holds.
type manifest struct {
	Format   string `json:"format"`
	Version  int    `json:"version"`
	Run      string `json:"run"`
	Recipe   string `json:"recipe"`
	Status   string `json:"status"`
	Plan     string `json:"plan"` // hash
	Events   uint64 `json:"events"`
	Redacted bool   `json:"redacted"`
	Imported bool   `json:"imported,omitempty"` // it came in a bundle where it was exported
	// Members are the other members, and Sum the SHA-256 of this manifest without
	// it: with the comment of the file they tell what was changed, not who did it.
	Members map[string]member `json:"members,omitempty"`
	Sum     string            `json:"sum,omitempty"`
}

// A member is what the manifest says of one.
type member struct {
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// sum is the checksum of the manifest itself.
func (m manifest) sum() (string, error) { //nolint:gocritic // a copy is what is changed
	m.Sum = ""
	text, err := json.Marshal(m)
	if err != nil {
		return "", err
	}
	h := sha256.Sum256(text)
	return hex.EncodeToString(h[:]), nil
}

// An exported is what export says it did.
type exported struct {
	manifest
	File  string `json:"file"`
	Bytes int64  `json:"bytes"`
}

func (a *app) exportCommand() *cobra.Command {
	var out string
	var redact, force bool
	cmd := &cobra.Command{
		Use:   "export RUN",
		Short: "Write a run into one file, to keep or to show to others",
		Long: "Write a run into one file: its plan and its whole journal. `roux import` reads it on another machine, where every command " +
			"that looks at runs works on it. With --redact every text that passed through the run (inputs, outputs, logs, messages) is " +
			"replaced; the recipe, numbers, times and codes stay. Files that the run names are not included.",
		Example: "roux export @last\nroux export @last-failed --redact --out bug.roux.zip",
		Args:    wants(1, 1, "RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.reading(cmd.Context(), func(ctx context.Context, j store.Reader) error {
				head, err := findRun(ctx, j, args[0])
				if err != nil {
					return err
				}
				if out == "" {
					out = head.Run + bundleExt
				}
				a.sayImported(head)
				done, err := a.export(ctx, j, head, out, redact, force)
				if err != nil {
					return err
				}
				if out != "-" {
					a.show(done, func() {
						a.text("%s: %s, %s events, %s\n", view.OneLine(done.File), done.Run, fmt.Sprint(done.Events), byteSize(done.Bytes).text())
					})
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVarP(&out, "out", "O", "", "file to write (default RUN"+bundleExt+"); - is standard output")
	cmd.Flags().BoolVar(&redact, "redact", false, "replace every text that passed through the run")
	cmd.Flags().BoolVar(&force, "force", false, "overwrite the file")
	return cmd
}

// export writes the bundle, to standard output or as a file.
func (a *app) export(ctx context.Context, j store.Reader, head store.Head, path string, redact, force bool) (*exported, error) {
	if path == "-" {
		if _, terminal := a.stdoutColumns(); terminal {
			return nil, fault.New(fault.Usage, "a bundle is no text for a terminal: name a file with --out, or pipe it on")
		}
		return nil, writeBundle(ctx, j, head, a.stdout, redact)
	}
	root, base, err := openBeside(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	d, err := newDraft(root, base, path, 0o600, force)
	if err != nil {
		return nil, err
	}
	defer d.drop()
	if err := writeBundle(ctx, j, head, d, redact); err != nil {
		return nil, err
	}
	info, err := d.f.Stat()
	if err != nil {
		return nil, writeError(path, err)
	}
	if err := d.place(); err != nil {
		return nil, err
	}
	done := &exported{manifest: newManifest(head, redact), File: path, Bytes: info.Size()}
	done.Events, err = lastEvent(ctx, j, head.Key)
	return done, err
}

func newManifest(head store.Head, redacted bool) manifest {
	return manifest{Format: bundleFormat, Version: bundleVersion, Run: head.Run, Recipe: head.Recipe,
		Status: head.Status, Plan: plan.HashOf(head.PlanHash), Redacted: redacted, Imported: head.Imported()}
}

func writeBundle(ctx context.Context, j store.Reader, head store.Head, w io.Writer, redact bool) error {
	p, err := planOf(ctx, j, head)
	if err != nil {
		return err
	}
	text, err := p.Encode()
	if err != nil {
		return err
	}
	m := newManifest(head, redact)
	m.Members = map[string]member{}
	// What is written last stands last: the comment is the checksum of the rest.
	end := &sealer{w: w, hash: sha256.New()}
	z := zip.NewWriter(end)
	put := func(name string, data []byte) error {
		method := zip.Deflate
		if len(data) > bombBytes && shrinks(data) > bombRatio/2 {
			method = zip.Store // import would take it for a bomb
		}
		h := sha256.Sum256(data)
		if name != "manifest.json" {
			m.Members[name] = member{int64(len(data)), hex.EncodeToString(h[:])}
		}
		into, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: method})
		if err == nil {
			_, err = into.Write(data)
		}
		return err
	}
	if err := put("plan.json", text); err != nil {
		return err
	}
	var frames, lines bytes.Buffer
	err = eachShown(ctx, j, head.Key, p, 0, func(ev *journal.Event) error {
		if redact {
			if ev, err = view.Redact(ev); err != nil {
				return err
			}
		}
		m.Events = ev.Seq
		if err := writeJSON(&lines, journal.Render(p, head.Run, ev), false); err != nil {
			return err
		}
		if frames.Len() > maxBundleJournal || lines.Len() > maxBundleEvents {
			return fault.New(fault.ValueTooLarge, "the journal of run %s is too large for a bundle, which takes %s", head.Run, byteSize(maxBundleJournal).text())
		}
		_, err := frames.Write(journal.AppendFrame(nil, []journal.Event{*ev}))
		return err
	})
	if err != nil {
		return err
	}
	if err := errors.Join(put("journal.bin", frames.Bytes()), put("events.jsonl", lines.Bytes())); err != nil {
		return err
	}
	if m.Sum, err = m.sum(); err != nil {
		return err
	}
	var about bytes.Buffer
	if err := writeJSON(&about, m, true); err != nil {
		return err
	}
	if err := errors.Join(put("manifest.json", about.Bytes()), z.SetComment(strings.Repeat("0", sealBytes)), z.Close()); err != nil {
		return err
	}
	return end.seal()
}

// shrinks says how many times smaller data is when it is packed.
func shrinks(data []byte) int64 {
	var packed countingWriter
	w, err := flate.NewWriter(&packed, flate.DefaultCompression)
	if err == nil {
		_, err = w.Write(data)
		err = errors.Join(err, w.Close())
	}
	if err != nil {
		return 0
	}
	return int64(len(data)) / max(packed.n, 1)
}

type countingWriter struct{ n int64 }

func (w *countingWriter) Write(p []byte) (int, error) {
	w.n += int64(len(p))
	return len(p), nil
}

// A sealer passes on all but the last bytes, in whose place seal puts the
// checksum of what it has passed on.
type sealer struct {
	w    io.Writer
	hash hash.Hash
	held []byte
}

func (s *sealer) Write(p []byte) (int, error) {
	s.held = append(s.held, p...)
	n := len(s.held) - sealBytes
	if n <= 0 {
		return len(p), nil
	}
	_, _ = s.hash.Write(s.held[:n])
	if _, err := s.w.Write(s.held[:n]); err != nil {
		return 0, err
	}
	s.held = append(s.held[:0], s.held[n:]...)
	return len(p), nil
}

func (s *sealer) seal() error {
	_, err := io.WriteString(s.w, hex.EncodeToString(s.hash.Sum(nil)))
	return err
}

func (a *app) importCommand() *cobra.Command {
	var unverified bool
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Read a run that export wrote, to look at it here",
		Long: "Read a run that export wrote, to look at it here: runs get, events, trace, explain, diff and replay work on it. Nothing of it " +
			"is carried out, and the run is marked as imported wherever it is shown: it cannot be retried or resumed unless `roux runs adopt` " +
			"makes it one of this data directory. A bundle that was changed is refused; who wrote it is not checked. Importing the same run " +
			"again changes nothing.",
		Example: "roux import bug.roux.zip\nroux trace @last",
		Args:    wants(1, 1, "FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := readBundle(args[0], unverified)
			if err != nil {
				return err
			}
			dir, err := a.dataDir()
			if err != nil {
				return err
			}
			st, err := a.openStore(cmd.Context(), dir)
			if err != nil {
				return err
			}
			state, err := b.commit(cmd.Context(), st)
			if err = errors.Join(err, storageError(dir, st.Close())); err != nil {
				return err
			}
			a.show(map[string]any{"id": b.Run, "recipe": b.Recipe, "status": b.run.Status().String(), "events": b.run.Last(), "state": state, "verified": !b.unverified}, func() {
				a.text("%s %s: %s, %s, %d events\n", b.Run, state, view.OneLine(b.Recipe), b.run.Status(), b.run.Last())
			})
			return nil
		},
	}
	cmd.Flags().BoolVar(&unverified, "unverified", false, "also read a bundle of an earlier release, which has no checksums")
	return cmd
}

// importing is why a run is set apart until all of it is stored.
const importing = store.ImportedReason + " in part, because the import was interrupted: import it again"

// withoutMasked is in the reason of an imported run whose journal does not hold all
// that its steps read.
const withoutMasked = ", without what was masked or redacted"

// commit stores the run, in several transitions when it is long: until the last
// one it is set apart, so that nothing ever carries on half of it.
func (b *bundle) commit(ctx context.Context, st store.Store) (state string, err error) {
	key := store.Key{Account: account, Run: b.Run}
	done, err := b.have(ctx, st, key)
	switch {
	case errors.Is(err, fault.RunNotFound):
	case err != nil:
		return "", err
	case done == b.run.Last():
		return "unchanged", nil
	}
	epoch, err := st.Own(ctx)
	if err != nil {
		return "", err
	}
	head := store.Head{Key: key, Recipe: b.Recipe, PlanHash: b.plan.Key(), Status: b.run.Status().String(), Created: b.created,
		Updated: b.created, Ended: b.ended, Used: b.run.Used(), Failures: b.run.HasFailures()}
	if b.ended != 0 {
		head.Code, head.Message = b.run.Failure()
	}
	head.Quarantine = store.ImportedReason
	if b.unverified {
		head.Quarantine += ", not verified"
	}
	if b.partial {
		head.Quarantine += withoutMasked
	}
	if b.Imported {
		head.Quarantine += ", also where it was exported"
	}
	if b.ended == 0 {
		head.Quarantine += "; it had not ended where it ran"
	}
	unfinished := head
	unfinished.Quarantine = importing
	t := store.Transition{Key: key, Epoch: epoch}
	flush := func(h store.Head) error {
		t.Head = &h
		if t.First == 1 {
			t.Plans = []store.EncodedPlan{{Key: b.plan.Key(), Data: b.planText}}
		}
		verdicts, err := st.Commit(ctx, []store.Transition{t})
		if err == nil {
			err = verdicts[0].Err
		}
		t = store.Transition{Key: key, Epoch: epoch}
		return err
	}
	err = journal.EachEvent(b.journal, func(ev *journal.Event) error {
		if ev.Seq <= done {
			return nil
		}
		if len(t.Frames) > b.piece {
			if err := flush(unfinished); err != nil {
				return err
			}
		}
		if t.First == 0 {
			t.First = ev.Seq
		}
		t.Last = ev.Seq
		t.Frames = journal.AppendFrame(t.Frames, []journal.Event{*ev})
		return nil
	})
	if err != nil {
		return "", err
	}
	return "imported", flush(head)
}

// have says how many events of the run are stored already, when they are its own.
func (b *bundle) have(ctx context.Context, st store.Store, key store.Key) (uint64, error) {
	head, err := st.Head(ctx, key)
	if err != nil {
		return 0, err
	}
	last, same := uint64(0), plan.HashOf(head.PlanHash) == b.Plan
	var mine [][]byte
	err = journal.EachEvent(b.journal, func(ev *journal.Event) error {
		mine = append(mine, journal.AppendFrame(nil, []journal.Event{*ev}))
		return nil
	})
	if err != nil {
		return 0, err
	}
	err = eachEvent(ctx, st, key, 0, func(ev *journal.Event) error {
		last = ev.Seq
		same = same && last <= uint64(len(mine)) && slices.Equal(mine[last-1], journal.AppendFrame(nil, []journal.Event{*ev}))
		return nil
	})
	if err == nil && (!same || last < uint64(len(mine)) && head.Quarantine != importing) {
		err = fault.New(fault.Conflict, "there is another run %s here: import into an empty directory with --data DIR", b.Run)
	}
	return last, err
}
