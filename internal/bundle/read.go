// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

// A Bundle is a bundle that was read and is consistent.
type Bundle struct {
	Manifest
	Definition *plan.Plan
	State      *view.State // the state that the journal folds to
	Unverified bool        // it has no checksums
	// Partial reports that values in a journal were masked or redacted when it was
	// exported.
	Partial bool
	// Piece is how many bytes of the journals are stored per commit. Default 1 MiB.
	Piece int

	plans map[string]*encodedPlan // by hash; with that of the run
	own   content
	below []content // the runs below, parents first
}

// An encodedPlan is a plan with its stored form.
type encodedPlan struct {
	*plan.Plan
	text []byte
}

// A content is a run of a bundle.
type content struct {
	run, parent string // parent is "" for the run of the bundle
	recipe      string
	plan        *encodedPlan
	journal     []byte
	head        store.Head // what the journal says of it, without a key, a root and a parent
	last        uint64     // event
	children    map[string]bool
}

// Read reads a bundle of the given size and replays it; it trusts nothing in it. An
// inconsistent bundle is fault.FileInvalid. path names the file in errors. A bundle of
// an earlier release has no checksums and is read only if unverified is set.
func Read(f io.ReaderAt, size int64, path string, unverified bool) (b *Bundle, err error) {
	bad := func(err error, what string) error {
		return fault.Wrap(fault.FileInvalid, err, "%s is no bundle that roux export wrote: %s", path, what)
	}
	listing := &byteLimit{from: f, left: maxListing}
	z, err := zip.NewReader(listing, size)
	if err != nil {
		return nil, bad(err, err.Error())
	}
	listing.left = math.MaxInt64
	b = &Bundle{Piece: 1 << 20}
	members, err := membersOf(z)
	if err != nil {
		return nil, bad(err, err.Error())
	}
	if err := b.readManifest(members); err != nil {
		return nil, bad(err, err.Error())
	}
	switch b.Version {
	case Version, TreeVersion:
		err = b.verify(members, f, size)
	case UnhashedVersion:
		if b.Unverified = true; !unverified {
			return nil, fault.New(fault.FileInvalid, "%s was written by an earlier release and has no checksums, so changes cannot be detected; read it with --unverified", path)
		}
	default:
		err = fmt.Errorf("it has format version %d, and this release reads %d and %d", b.Version, Version, TreeVersion)
	}
	if err == nil && !isRunID(b.Run) {
		err = fmt.Errorf("%q is not a run id", view.Cut(b.Run, 40))
	}
	if err == nil {
		err = b.readRun(members)
	}
	if err == nil && b.Version == TreeVersion {
		err = b.readTree(members)
	}
	if err != nil {
		return nil, bad(err, err.Error())
	}
	return b, nil
}

// A byteLimit stops reading a file after a number of bytes. The list of members must
// be read before anything in it can be checked, and takes several times its size in
// memory.
type byteLimit struct {
	from io.ReaderAt
	left int64
}

func (f *byteLimit) ReadAt(p []byte, at int64) (int, error) {
	if f.left -= int64(len(p)); f.left < 0 {
		return 0, errors.New("its list of members is too long")
	}
	return f.from.ReadAt(p, at)
}

// membersOf lists the members that a bundle declares. It refuses a bundle whose
// declared size is too large, before anything is unpacked.
func membersOf(z *zip.Reader) (map[string]*zip.File, error) {
	limits := map[string]uint64{"manifest.json": maxManifest, "plan.json": maxPlan, "journal.bin": maxJournal, "events.jsonl": maxEvents,
		"plans.jsonl": maxPlan, "runs.jsonl": maxRuns, "runs.bin": maxJournal}
	members := map[string]*zip.File{}
	for _, f := range z.File {
		most, known := limits[f.Name]
		switch size := f.UncompressedSize64; {
		case !known:
			return nil, fmt.Errorf("it contains %q, which is not a member of a bundle", view.Cut(f.Name, 60))
		case members[f.Name] != nil:
			return nil, fmt.Errorf("it contains %s twice", f.Name)
		case size > most:
			return nil, fmt.Errorf("%s has %s, more than %s", f.Name, view.Bytes(int64(min(size, 1<<62))), view.Bytes(int64(most)))
		case size > bombBytes && size/bombRatio > f.CompressedSize64:
			return nil, fmt.Errorf("%s unpacks to more than %d times its size, which no bundle written by export does", f.Name, bombRatio)
		}
		members[f.Name] = f
	}
	return members, nil
}

// readManifest reads and checks the manifest.
func (b *Bundle) readManifest(members map[string]*zip.File) error {
	text, err := unpack(members, "manifest.json", maxManifest, false)
	switch {
	case err != nil:
		return err
	case !utf8.Valid(text):
		return errors.New("manifest.json is not valid UTF-8")
	case json.Unmarshal(text, &b.Manifest) != nil || b.Format != format:
		return errors.New("its manifest.json is not that of a bundle")
	}
	if b.Version != Version && b.Version != TreeVersion {
		return nil
	}
	// The decoded manifest is encoded again and compared with the text, because the
	// checksum does not cover fields that decoding ignores.
	sum, err := b.Manifest.Checksum()
	if err != nil {
		return err
	}
	var again bytes.Buffer
	if err := writeJSON(&again, b.Manifest, true); err != nil {
		return err
	}
	if sum != b.Sum || !bytes.Equal(again.Bytes(), text) {
		return errors.New("manifest.json was changed: its checksum differs")
	}
	return nil
}

// verify compares every member, and then all bytes of the file, with the checksums
// that export wrote.
func (b *Bundle) verify(members map[string]*zip.File, f io.ReaderAt, size int64) error {
	for _, name := range slices.Sorted(maps.Keys(b.Members)) {
		want, file := b.Members[name], members[name]
		if file == nil || name == "manifest.json" {
			return fmt.Errorf("%s is missing", view.OneLine(view.Cut(name, 60)))
		}
		if file.UncompressedSize64 != uint64(want.Size) { //nolint:gosec // a negative one is another size
			return fmt.Errorf("%s was changed: it has %d bytes, and had %d", name, file.UncompressedSize64, want.Size)
		}
		r, err := file.Open()
		if err != nil {
			return fmt.Errorf("%s was changed: %w", name, err)
		}
		h := sha256.New()
		_, err = io.Copy(h, io.LimitReader(r, want.Size+1))
		if err = errors.Join(err, r.Close()); err != nil {
			return fmt.Errorf("%s was changed: %w", name, err)
		}
		if hex.EncodeToString(h.Sum(nil)) != want.SHA256 {
			return fmt.Errorf("%s was changed: its checksum is not the one in the manifest", name)
		}
	}
	for name := range members {
		if _, named := b.Members[name]; !named && name != "manifest.json" {
			return fmt.Errorf("%s is not in the manifest", name)
		}
	}
	h, end := sha256.New(), make([]byte, ChecksumBytes)
	if _, err := io.Copy(h, io.NewSectionReader(f, 0, size-ChecksumBytes)); err != nil {
		return err
	}
	if _, err := f.ReadAt(end, size-ChecksumBytes); err != nil {
		return err
	}
	if string(end) != hex.EncodeToString(h.Sum(nil)) {
		return errors.New("the archive around its members was changed, or packed anew")
	}
	return nil
}

// isRunID reports whether a text has the form of the ids that Roux generates. Ids
// become file names and are printed to terminals unchanged.
func isRunID(s string) bool {
	id, ok := strings.CutPrefix(s, "run_")
	return ok && len(id) == 26 && strings.Trim(id, "0123456789ABCDEFGHJKMNPQRSTVWXYZ") == ""
}

// unpack reads a member into as much memory as it declares, which membersOf has
// checked. sure means that its real size is known to be the declared one.
func unpack(members map[string]*zip.File, name string, most int64, sure bool) ([]byte, error) {
	f := members[name]
	if f == nil {
		return nil, fmt.Errorf("%s is missing", name)
	}
	size := min(int64(f.UncompressedSize64), most) //nolint:gosec // bounded by membersOf
	r, err := f.Open()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	defer func() { _ = r.Close() }()
	first := size
	if !sure {
		first = min(size, 1<<20) // the declared size may be false
	}
	buf := bytes.NewBuffer(make([]byte, 0, first+bytes.MinRead))
	n, err := io.Copy(buf, io.LimitReader(r, size+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if n != size {
		return nil, fmt.Errorf("%s does not have the size that it declares", name)
	}
	return buf.Bytes(), nil
}

// readRun reads the plan and the journal of the run.
func (b *Bundle) readRun(members map[string]*zip.File) error {
	text, err := unpack(members, "plan.json", maxPlan, !b.Unverified)
	if err != nil {
		return err
	}
	b.own = content{run: b.Run, recipe: b.Recipe}
	if b.own.journal, err = unpack(members, "journal.bin", maxJournal, !b.Unverified); err != nil {
		return err
	}
	b.Partial = b.Redacted
	return contained(func() error {
		p, err := readPlan(text)
		if err != nil {
			return fmt.Errorf("plan.json: %w", err)
		}
		if p.Hash().String() != b.Plan {
			return errors.New("its plan is not the one in the manifest")
		}
		b.plans = map[string]*encodedPlan{b.Plan: p}
		b.own.plan, b.Definition = p, p.Plan
		b.State, err = b.check(&b.own)
		return err
	})
}

// contained runs a check, and returns a panic as an error: a journal may not fit its plan.
func contained(check func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("its journal does not fit its plan: %v", v)
		}
	}()
	return check()
}

func readPlan(text []byte) (*encodedPlan, error) {
	if !utf8.Valid(text) {
		return nil, errors.New("it is not valid UTF-8")
	}
	p, err := plan.Decode(text)
	if err != nil {
		return nil, err
	}
	if err := p.Check(); err != nil {
		return nil, err
	}
	return &encodedPlan{p, text}, nil
}

// check checks a plan and a journal by using them as every command will.
func (b *Bundle) check(c *content) (*view.State, error) {
	p := c.plan.Plan
	state, shown := view.NewState(p), view.NewRun(p, c.run)
	public := journal.NewRenderer(p, c.run)
	marks := view.NewMask(p) != nil || len(p.Children) > 0 || c.parent != ""
	err := journal.EachEvent(c.journal, func(ev *journal.Event) error {
		if ev.Seq != c.last+1 {
			return fmt.Errorf("event %d follows event %d", ev.Seq, c.last)
		}
		if c.last++; c.last == 1 {
			c.head.Created = ev.At
		}
		if !utf8.ValidString(ev.Text) || !utf8.Valid(ev.Data) {
			return fmt.Errorf("event %d holds text that is not valid UTF-8", ev.Seq)
		}
		b.Partial = b.Partial || marks && bytes.Contains(ev.Data, []byte(view.Masked))
		if ev.Step >= 0 && (int(ev.Step) >= len(p.Steps) || journal.StepPath(p, ev.Ref()) == "") {
			return fmt.Errorf("event %d is about a step that the plan does not have", ev.Seq)
		}
		if err := state.Apply(ev); err != nil {
			return err
		}
		if _, child := view.Related(ev); child != "" {
			if c.children == nil {
				c.children = map[string]bool{}
			}
			c.children[child] = true
		}
		_ = public.Render(ev)
		return shown.Apply(ev)
	})
	if err != nil {
		return nil, err
	}
	if start := state.Start(); start == nil || start.Run != c.run || c.parent != "" && (start.Child == nil || start.Child.Parent != c.parent) {
		return nil, errors.New("its journal is not that of the run in the manifest")
	}
	c.head.Recipe, c.head.PlanHash, c.head.Status = c.recipe, p.Key(), state.Status().String()
	c.head.Labels, _ = store.EncodeLabels(state.Start().Labels) // those that exceed a bound are in the journal only
	c.head.Updated, c.head.Ended, c.head.Used, c.head.Failures = c.head.Created, shown.Ended, state.Used(), state.HasFailures()
	if shown.Ended != 0 {
		c.head.Code, c.head.Message = state.Failure()
	}
	return state, nil
}

// readTree reads the plans of other recipes and the runs below.
func (b *Bundle) readTree(members map[string]*zip.File) error {
	texts, err := unpack(members, "plans.jsonl", maxPlan, true)
	if err != nil {
		return err
	}
	for i, line := range lines(texts) {
		err := contained(func() error {
			p, err := readPlan(line)
			if err == nil {
				b.plans[p.Hash().String()] = p
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("plans.jsonl:%d: %w", i+1, err)
		}
	}
	about, err := unpack(members, "runs.jsonl", maxRuns, true)
	if err != nil {
		return err
	}
	journals, err := unpack(members, "runs.bin", maxJournal, true)
	if err != nil {
		return err
	}
	known := map[string]map[string]bool{b.Run: b.own.children} // the child runs that a run has started
	for i, line := range lines(about) {
		c, err := b.readBelow(line, known, journals)
		if err != nil {
			return fmt.Errorf("runs.jsonl:%d: %w", i+1, err)
		}
		journals, known[c.run] = journals[len(c.journal):], c.children
		c.children = nil
		b.below = append(b.below, *c)
	}
	if len(journals) > 0 || len(b.below) != b.Runs {
		return errors.New("runs.bin and runs.jsonl do not have the runs that the manifest counts")
	}
	return nil
}

// readBelow reads a line of runs.jsonl, and the journal that begins with journals.
func (b *Bundle) readBelow(line []byte, known map[string]map[string]bool, journals []byte) (*content, error) {
	var about below
	if !utf8.Valid(line) || json.Unmarshal(line, &about) != nil {
		return nil, errors.New("it does not describe a run")
	}
	_, twice := known[about.Run]
	switch p := b.plans[about.Plan]; {
	case !isRunID(about.Run):
		return nil, fmt.Errorf("%q is not a run id", view.Cut(about.Run, 40))
	case twice:
		return nil, fmt.Errorf("run %s is there twice", about.Run)
	case !known[about.Parent][about.Run]:
		return nil, fmt.Errorf("run %s was not started by a run before it", about.Run)
	case p == nil:
		return nil, fmt.Errorf("the plan of run %s is missing", about.Run)
	case about.Bytes < 0 || about.Bytes > int64(len(journals)):
		return nil, fmt.Errorf("the journal of run %s is missing", about.Run)
	default:
		c := &content{run: about.Run, parent: about.Parent, recipe: about.Recipe, plan: p, journal: journals[:about.Bytes]}
		err := contained(func() error {
			_, err := b.check(c)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("run %s: %w", about.Run, err)
		}
		return c, nil
	}
}

// lines splits a member into its lines.
func lines(text []byte) [][]byte {
	return slices.DeleteFunc(bytes.Split(text, []byte{'\n'}), func(line []byte) bool { return len(line) == 0 })
}
