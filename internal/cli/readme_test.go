// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/roux-engine/roux/examples/service"
)

var (
	shellBlock   = regexp.MustCompile("(?ms)^```(?:sh|console)\n(.*?)^```")
	buildCommand = regexp.MustCompile(`(?m)^.*go build .*-o roux \./cmd/roux$`)
)

// shellBlocks are the commands that a page shows, block by block.
func shellBlocks(t *testing.T, page string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range shellBlock.FindAllStringSubmatch(string(text), -1) {
		blocks = append(blocks, block[1])
	}
	if len(blocks) == 0 {
		t.Fatalf("%s shows no commands", page)
	}
	return blocks
}

// A bench is a directory that looks like a clone of the repository to the commands of a
// page. roux in it is this test binary; commands that build or run all tests are
// replaced by ones that do nothing.
type bench struct {
	dir string
	env []string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("there is no sh here, for which the pages are written")
	}
	dir := t.TempDir()
	bin := filepath.Join(dir, "bin")
	if err := os.MkdirAll(filepath.Join(dir, ".ci"), 0o755); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{
		"roux": exe, "examples": filepath.Join(root, "examples"), ".ci/test": "/bin/true", "bin": dir,
	} {
		if err := os.Symlink(to, filepath.Join(dir, from)); err != nil {
			t.Skipf("symbolic links: %v", err)
		}
	}
	return &bench{dir, append(os.Environ(), "HOME="+dir, "TMPDIR="+t.TempDir(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))}
}

// run runs one block as a shell would, and stops at the first command that fails.
func (b *bench) run(t *testing.T, block string) {
	t.Helper()
	script := strings.ReplaceAll(block, "go run ./cmd/roux", "./roux")
	script = buildCommand.ReplaceAllString(script, "true")
	cmd := exec.Command("sh", "-eu", "-c", script)
	cmd.Dir, cmd.Env = b.dir, b.env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s\n%v\n%s", block, err, out)
	}
}

// The commands of README.md and of the first ten minutes work, in order, with the files
// of a clone. Only two are not run: the build, because the binary under test is already
// built, and the command that runs all tests, because this test is one of them.
func TestPagesWork(t *testing.T) {
	if testing.Short() {
		t.Skip("not short: it runs every command of the pages, one process after the other")
	}
	for _, page := range []string{"../../README.md", "../../docs/first-ten-minutes.md"} {
		t.Run(filepath.Base(page), func(t *testing.T) {
			b := newBench(t)
			for _, block := range shellBlocks(t, page) {
				b.run(t, block)
			}
		})
	}
	readme := strings.Join(shellBlocks(t, "../../README.md"), "")
	for _, want := range []string{"go run ./cmd/roux run examples/document-digest.yaml --file examples/report.pdf\n", "./.ci/test\n"} {
		if !strings.Contains(readme, want) {
			t.Errorf("README.md does not show %q", want)
		}
	}
	if info, err := os.Stat("../../.ci/test"); err != nil || info.Mode().Perm()&0o100 == 0 {
		t.Errorf(".ci/test cannot be run: %v", err)
	}
}

// The commands of the page of examples work, with the example service that the page
// uses.
func TestExamplesPageWorks(t *testing.T) {
	if testing.Short() {
		t.Skip("not short: it runs every command of the page, one process after the other")
	}
	s := httptest.NewServer(service.New())
	t.Cleanup(s.Close) // after the subtests, which run beside each other
	for _, block := range shellBlocks(t, "../../docs/examples.md") {
		t.Run(strings.Fields(block)[2], func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.env = append(b.env, "ROUX_EGRESS_ALLOW=127.0.0.1/32")
			block := strings.ReplaceAll(strings.TrimSpace(block), "http://127.0.0.1:8480", s.URL)
			switch {
			case strings.Contains(block, "examples/approval"):
				// Send the approval as soon as the run waits for it.
				block = "trap 'kill $! 2>/dev/null || true' EXIT; " + block
				block += " & for i in $(seq 300); do roux runs signal @last approve --payload '{\"approved\": true}' && break; done; wait $!"
			case strings.Contains(block, "examples/compensation"):
				block = "! " + block // this example fails on purpose
			}
			b.run(t, block)
		})
	}
}

// TestExamplesAreValid: every recipe in the examples is valid.
func TestExamplesAreValid(t *testing.T) {
	names, err := filepath.Glob("../../examples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(names) == 0 {
		t.Fatal("no examples")
	}
	for i := range names {
		if names[i], err = filepath.Abs(names[i]); err != nil {
			t.Fatal(err)
		}
	}
	if out, talk, code := roux(t, nil, append([]string{"validate"}, names...)...); code != 0 || strings.Contains(out, "warning") {
		t.Errorf("exit %d\n%s%s", code, out, talk)
	}
}
