// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	library "github.com/roux-engine/roux"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/doctor"
	"github.com/roux-engine/roux/internal/secrets"
)

// killedWith makes a data directory with n runs, as a process that is killed leaves it.
func killedWith(t *testing.T, n int) string {
	t.Helper()
	live, dir := filepath.Join(t.TempDir(), "live"), filepath.Join(t.TempDir(), "killed")
	e, err := library.Open(t.Context(), library.Options{Dir: live})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		src := fmt.Sprintf("name: r%d\nsteps:\n  - {id: split, action: {name: text-split, parameters: {text: %q, output: file}}}\n  - {id: t, transform: {expression: 'size(%q)'}}\n",
			i, strings.Repeat(fmt.Sprintf("Part %d. ", i), 40), strings.Repeat("x", 3_000))
		run, err := e.Start(t.Context(), library.Request{Source: "r.yaml", Recipe: []byte(src)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Wait(t.Context(), run); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(dir, os.DirFS(live)); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Every command refuses a data directory whose log is damaged and names the command
// that salvages it. What that command saves is intact, and the damaged directory is
// unchanged.
func TestSalvage(t *testing.T) {
	const n = 12
	image := killedWith(t, n)
	wal, err := os.ReadFile(filepath.Join(image, "roux.db-wal"))
	if err != nil {
		t.Fatal(err)
	}
	end := len(wal)
	for end > 0 && wal[end-1] == 0 {
		end--
	}
	places := map[string]int{"the header": 20, "early": end / 5, "in the middle": end / 2, "late": end * 4 / 5}
	if testing.Short() {
		places = map[string]int{"in the middle": end / 2}
	}
	for name, at := range places {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			if err := os.CopyFS(dir, os.DirFS(image)); err != nil {
				t.Fatal(err)
			}
			bad := append([]byte{}, wal...)
			bad[at] ^= 4
			if err := os.WriteFile(filepath.Join(dir, "roux.db-wal"), bad, 0o600); err != nil {
				t.Fatal(err)
			}
			before := digestOf(t, dir)
			for _, args := range [][]string{{"runs", "list"}, {"resume"}, {"files", "ls"}} {
				if out, talk, code := inProcess("", append(args, "--data", dir)...); code == fault.ExitOK || !strings.Contains(talk, "roux doctor --salvage DIR") {
					t.Errorf("%v: exit %d: %s%s", args, code, out, talk)
				}
			}
			// Here no run continues. STORE_CORRUPT promises "Other runs go on" only
			// when a single run is damaged.
			for _, args := range [][]string{{"resume"}, {"resume", "-o", "json"}, {"doctor"}, {"doctor", "-o", "json"}} {
				out, talk, code := inProcess("", append(args, "--data", dir)...)
				if said := out + talk; code == fault.ExitOK || !strings.Contains(said, "is damaged") || strings.Contains(said, "Other runs go on") ||
					args[len(args)-1] != "resume" && !strings.Contains(said, "keep this one") {
					t.Errorf("%v: exit %d: %s", args, code, said)
				}
			}
			saved := filepath.Join(t.TempDir(), "saved")
			out, talk, code := inProcess("", "doctor", "--data", dir, "--salvage", saved, "-o", "json")
			var got doctor.Salvaged
			if err := json.Unmarshal([]byte(out), &got); err != nil {
				t.Fatalf("exit %d: %s%s", code, out, talk)
			}
			if got.Runs < n-2 || got.Files == 0 || (code == fault.ExitOK) != (len(got.Damaged)+len(got.Store) == 0) {
				t.Errorf("exit %d: %s", code, out)
			}
			if after := digestOf(t, dir); after != before {
				t.Error("the damaged directory was changed")
			}
			// What was saved can be read and goes on.
			if out, talk, code := inProcess("", "doctor", "--data", saved); code != fault.ExitOK && len(got.Damaged)+len(got.Store) == 0 {
				t.Errorf("doctor of what was saved: exit %d: %s%s", code, out, talk)
			}
			list, talk, code := inProcess("", "runs", "list", "--data", saved, "-o", "name", "--limit", "100")
			if code != fault.ExitOK || len(strings.Fields(list)) < got.Runs {
				t.Errorf("runs list: exit %d: %d of %d%s", code, len(strings.Fields(list)), got.Runs, talk)
			}
			wantSalvagedFeed(t, saved)
			if entries, _ := filepath.Glob(filepath.Join(saved, "image-*")); len(entries) != 0 {
				t.Errorf("left behind: %v", entries)
			}
		})
	}
}

// wantSalvagedFeed fails the test unless every number from before is refused as no longer
// kept, and the feed continues with numbers that were never used.
func wantSalvagedFeed(t *testing.T, dir string) {
	t.Helper()
	for _, after := range []string{"0", "1", "1000"} {
		if out, talk, code := inProcess("", "feed", "--after", after, "--data", dir); code != fault.ExitConflict || !strings.Contains(talk, "CURSOR_EXPIRED") {
			t.Errorf("after %s: exit %d: %s%s", after, code, out, talk)
		}
	}
	if out, talk, code := inProcess("", "run", write(t, "plain.yaml", plainRecipe), "-q", "--data", dir); code != fault.ExitOK {
		t.Fatalf("exit %d: %s%s", code, out, talk)
	}
	out, talk, code := inProcess("", "feed", "--limit", "1", "--data", dir, "-o", "json")
	var changes []changeView
	if err := json.Unmarshal([]byte(out), &changes); err != nil || code != fault.ExitOK || len(changes) != 1 || changes[0].ID < 100_000_000 {
		t.Errorf("exit %d: %s%s", code, out, talk)
	}
}

// digestOf is what the database, its log and the files hold.
func digestOf(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Name() == "lock" {
			return err
		}
		data, err := os.ReadFile(path)
		fmt.Fprintf(&all, "%s %d %x\n", path, len(data), sha256.Sum256(data))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// --salvage makes a new directory and refuses one that already holds something.
func TestSalvageRefuses(t *testing.T) {
	dir := killedWith(t, 1)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(filepath.Join(dir, datadir.Files), link); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	before := digestOf(t, dir)
	for args, want := range map[string]string{
		"--salvage " + dir:                            "it lies in",
		"--salvage " + filepath.Join(dir, "new"):      "it lies in",
		"--salvage " + filepath.Join(link, "a", "b"):  "it lies in",
		"--salvage " + filepath.Dir(link):             "is not empty",
		"--salvage " + filepath.Join(file, "x"):       "not a directory",
		"--salvage " + t.TempDir() + " --fix":         "none of the others can be",
		"--salvage x --data " + t.TempDir() + "/none": "does not exist",
	} {
		full := append([]string{"doctor"}, strings.Fields(args)...)
		if !strings.Contains(args, "--data") {
			full = append(full, "--data", dir)
		}
		if out, talk, code := inProcess("", full...); code == fault.ExitOK || !strings.Contains(talk, want) {
			t.Errorf("%s: exit %d: %s%s", args, code, out, talk)
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, "new")); err == nil || digestOf(t, dir) != before {
		t.Error("something was made in the damaged directory")
	}
	// Everything in a sound directory is saved.
	saved := filepath.Join(t.TempDir(), "saved")
	if out, talk, code := inProcess("", "doctor", "--data", dir, "--salvage", saved); code != fault.ExitOK || !strings.Contains(out, "saved 1 run and 1 file") {
		t.Errorf("exit %d: %s%s", code, out, talk)
	}
}

// A salvaged directory has the sealed secrets, and what opens them.
func TestSalvageKeepsSecrets(t *testing.T) {
	dir, to := killedWith(t, 1), filepath.Join(t.TempDir(), "salvaged")
	before := secrets.New(secrets.Config{Data: dir}).Vault()
	for _, account := range []string{"local", "acme"} {
		if err := before.Set(t.Context(), account, "token", "sealed for "+account); err != nil {
			t.Fatal(err)
		}
	}
	if _, talk, code := inProcess("", "doctor", "--data", dir, "--salvage", to); code != 0 {
		t.Fatal(talk)
	}
	after := secrets.New(secrets.Config{Data: to}).Vault()
	for _, account := range []string{"local", "acme"} {
		if v, err := after.Secret(t.Context(), account, "token"); v != "sealed for "+account || err != nil {
			t.Errorf("%s: %q, %v", account, v, err)
		}
	}
}
