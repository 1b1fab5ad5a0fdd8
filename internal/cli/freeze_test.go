// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"archive/zip"
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestF46_Freeze leaves a data directory for later releases to read, made by the
// binary that ROUX_FREEZE names. What is there already is not touched.
func TestF46_Freeze(t *testing.T) {
	binary := os.Getenv("ROUX_FREEZE")
	if binary == "" {
		t.Skip("ROUX_FREEZE names no binary that is to leave a store")
	}
	if !filepath.IsAbs(binary) {
		var err error
		if binary, err = filepath.Abs(filepath.Join("..", "..", binary)); err != nil {
			t.Fatal(err)
		}
	}
	f := &freezer{t: t, binary: binary, dir: t.TempDir()}
	if err := os.CopyFS(f.dir, os.DirFS(filepath.Join("testdata", "stores"))); err != nil {
		t.Fatal(err)
	}
	f.configure()
	f.local()
	if f.pays {
		f.account()
	}
	base := filepath.Join("testdata", "stores", time.Now().UTC().Format("2006-01-02-1504"))
	if err := packStore(base+".zip", filepath.Join(f.dir, ".roux")); err != nil {
		t.Fatal(err)
	}
	// Opening the directory changes it, so it is packed before this.
	events := f.events("local")
	if f.pays {
		events = append(events, f.events("acme")...)
		entries := f.out("credits", "ledger", "--account", "acme", "--limit", "1000", "-o", "jsonl")
		if err := os.WriteFile(base+".ledger", entries, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(base+".jsonl", events, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Logf("wrote %s.zip and .jsonl", base)
}

// A freezer runs commands of a release in a project of its own.
type freezer struct {
	t           *testing.T
	binary, dir string
	pays, trees bool     // accounts pay; runs have child runs
	key         []string // the flags of a run that spends the budget of a key
}

func (f *freezer) command(args ...string) *exec.Cmd {
	cmd := exec.Command(f.binary, args...)
	cmd.Dir, cmd.Env = f.dir, append(os.Environ(), "NO_COLOR=1", "ROUX_DATA="+filepath.Join(f.dir, ".roux"))
	if f.pays {
		cmd.Env = append(os.Environ(), "NO_COLOR=1") // roux.yaml says where the data is
	}
	return cmd
}

// configure writes the configuration of an account that pays, as far as the release knows
// what there is to say.
func (f *freezer) configure() {
	f.pays = true
	for i, rules := range []string{"max_credits: 300, max_live_runs: 2, keys: {ci: {limit: 100}}", "max_credits: 300, max_live_runs: 2", "max_credits: 300"} {
		text := "data: .roux\naccounts: {acme: {" + rules + "}}\nprices: {word-count: 2.5, hash: 1}\n"
		if err := os.WriteFile(filepath.Join(f.dir, "roux.yaml"), []byte(text), 0o600); err != nil {
			f.t.Fatal(err)
		}
		if f.command("config", "get", "prices").Run() != nil {
			continue
		}
		if i == 0 {
			f.key = []string{"--key", "ci"}
		}
		help, err := f.command("runs", "list", "--help").Output()
		f.trees = err == nil && bytes.Contains(help, []byte("--children"))
		return
	}
	f.pays = false
	if err := os.Remove(filepath.Join(f.dir, "roux.yaml")); err != nil {
		f.t.Fatal(err)
	}
}

// out returns what a command prints.
func (f *freezer) out(args ...string) []byte {
	f.t.Helper()
	out, err := f.command(args...).Output()
	if err != nil {
		f.t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return out
}

// do runs a command, which may fail on purpose.
func (f *freezer) do(args ...string) {
	f.t.Helper()
	if out, err := f.command(args...).CombinedOutput(); err != nil && !bytes.Contains(out, []byte("on purpose")) {
		f.t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

// hold starts a run, and kills the process once ready says so of a line on standard error.
func (f *freezer) hold(ready func(line string) bool, args ...string) {
	f.t.Helper()
	cmd := f.command(append([]string{"run"}, args...)...)
	out, err := cmd.StderrPipe()
	if err != nil {
		f.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	found := false
	for !found && lines.Scan() {
		found = ready(lines.Text())
	}
	if !found {
		f.t.Errorf("run %v did not come so far", args)
	}
	if err := cmd.Process.Kill(); err != nil {
		f.t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
}

func saying(text string) func(line string) bool {
	return func(line string) bool { return strings.Contains(line, text) }
}

// local leaves runs of an account that does not pay.
func (f *freezer) local() {
	f.do("run", "done.yaml", "--input", `words=["a","b","c","d"]`)
	f.do("run", "failed.yaml")
	f.do("runs", "retry", "@last")
	f.do("run", "flaky.yaml")
	f.hold(saying("node.waiting"), "waiting.yaml")
	f.do("runs", "cancel", "@last")
	for _, args := range [][]string{{"waiting.yaml"}, {"timer.yaml"}, {"busy.yaml"}, {"filed.yaml", "--file", "filed.yaml"}} {
		f.hold(saying("node.waiting"), args...)
	}
}

// account leaves runs of an account that pays: completed, failed and retried, waiting with
// what they hold, and queued. Where runs have child runs, two of them are trees.
func (f *freezer) account() {
	flags := append([]string{"--account", "acme"}, f.key...)
	run := func(args ...string) []string { return append(args, flags...) }
	f.do("credits", "grant", "100", "--key", "october", "--account", "acme")
	f.do("credits", "grant", "50", "--key", "gift", "--source", "promotional", "--account", "acme")
	f.do("credits", "void", "gift", "--account", "acme")
	f.do(run("run", "done.yaml", "--input", `words=["a","b"]`)...)
	if help, _ := f.command("credits", "--help").Output(); bytes.Contains(help, []byte("adjust")) {
		f.do("credits", "adjust", "@last", "2", "--key", "ticket", "--account", "acme")
	}
	f.do(run("run", "failed.yaml")...)
	f.do("runs", "retry", "@last", "--account", "acme")
	f.hold(saying("node.waiting"), run("waiting.yaml")...)
	if f.trees {
		f.do(run("run", "tree.yaml", "--input", "wait=false")...)
		f.hold(f.lastTwig(2), run("tree.yaml", "--input", "wait=true")...)
	} else {
		f.hold(saying("node.waiting"), run("waiting.yaml")...)
	}
	if help, _ := f.command("accounts").Output(); bytes.Contains(help, []byte("QUEUED")) {
		f.hold(saying("queued"), run("done.yaml", "--input", `words=["a"]`)...)
	}
}

// lastTwig is ready when the nth child run of recipe twig waits. Its parent's process tells
// another one that follows it.
func (f *freezer) lastTwig(n int) func(line string) bool {
	return func(line string) bool {
		_, run, started := strings.Cut(line, "recipe twig as run ")
		if started {
			n--
		}
		if !started || n > 0 {
			return false
		}
		follow := f.command("events", strings.TrimSpace(run), "-f", "--account", "acme")
		out, err := follow.StdoutPipe()
		if err != nil {
			f.t.Fatal(err)
		}
		if err := follow.Start(); err != nil {
			f.t.Fatal(err)
		}
		lines, waits := bufio.NewScanner(out), false
		for !waits && lines.Scan() {
			waits = strings.Contains(lines.Text(), "node.waiting")
		}
		if err := follow.Process.Kill(); err != nil {
			f.t.Error(err)
		}
		_ = follow.Wait() // it was killed
		return waits
	}
}

// events are those of all runs of an account, in the order of their ids.
func (f *freezer) events(account string) (events []byte) {
	flags := []string{"--account", account}
	if !f.pays {
		flags = nil
	}
	list := func(args ...string) []string {
		return strings.Fields(string(f.out(slices.Concat([]string{"runs", "list", "-o", "name", "--limit", "500"}, flags, args)...)))
	}
	ids := list()
	for n := 0; f.trees && n < len(ids); n++ {
		ids = append(ids, list("--children", ids[n])...)
	}
	for _, run := range slices.Sorted(slices.Values(ids)) {
		events = append(events, f.out(append([]string{"events", run, "-o", "jsonl"}, flags...)...)...)
	}
	return events
}

// packStore packs what a killed process left, without the files that are useless once
// the process has ended.
func packStore(path, dir string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	z := zip.NewWriter(f)
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || name == "lock" || strings.HasSuffix(name, "-shm") {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if strings.HasSuffix(name, "-wal") {
			data = append(bytes.TrimRight(data, "\x00"), make([]byte, 64)...)
		}
		w, err := z.Create(name)
		if err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	})
	if err != nil {
		return fmt.Errorf("pack %s: %w", dir, err)
	}
	return z.Close()
}
