// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
)

// mount gives the test a small disk of its own.
func mount(t *testing.T, options string) (dir string, remount func(options string)) {
	t.Helper()
	dir = t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", options, "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("a disk of its own cannot be mounted here: %v %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v %s", err, out)
		}
	})
	return dir, func(options string) {
		t.Helper()
		if out, err := exec.Command("mount", "-o", "remount,"+options, dir).CombinedOutput(); err != nil {
			t.Skipf("remount: %v %s", err, out)
		}
	}
}

// bulky writes about 36 MB through the journal. They compress to 27 MB, which is more
// than the write-ahead log holds.
const bulky = `name: bulky
steps:
  - id: many
    loop:
      over: "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,33,34,35,36,37,38,39,40]"
      steps:
        - {id: each, action: {name: large}}
        - {id: forget, transform: {expression: "1"}}
  - id: last
    transform: {expression: '"done"'}
outputs: {last: steps.last.output}
`

const small = "name: small\nsteps:\n  - id: work\n    action: {name: effect, parameters: {n: 1}}\noutputs: {n: steps.work.output.n}\n"

// F31: on a full disk a run says so and what to do; once there is room again,
// it goes on.
func TestF31_FullDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("it writes a disk full")
	}
	disk, _ := mount(t, "size=80m")
	env := []string{"ROUX_DATA=" + filepath.Join(disk, "data")}
	recipe := write(t, "small.yaml", small)
	if _, talk, code := roux(t, env, "run", recipe); code != 0 {
		t.Fatalf("with room: exit %d\n%s", code, talk)
	}
	ballast := filepath.Join(disk, "ballast")
	fill(t, ballast)
	_, talk, code := roux(t, env, "run", write(t, "bulky.yaml", bulky))
	if code != fault.ExitInternal || !strings.Contains(talk, "STORE_FULL") || !strings.Contains(talk, "ree some") {
		t.Errorf("full: exit %d\n%s", code, talk)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if out, talk, code := roux(t, env, "resume"); code != 0 || out != "last: done\n" {
		t.Errorf("resume with room: exit %d %s\n%s", code, out, talk)
	}
	if r := object[replayed](t, env, "replay", "@last"); !r.Same {
		t.Errorf("replay: %v", r.Differences)
	}
	if out, talk, code := roux(t, env, "run", recipe); code != 0 || out != "n: 1\n" {
		t.Errorf("run with room: exit %d %s\n%s", code, out, talk)
	}
}

// A disk that was full from the start leaves a sentence, not a stack.
func TestF31_FullFromTheStart(t *testing.T) {
	disk, _ := mount(t, "size=1m")
	env := []string{"ROUX_DATA=" + filepath.Join(disk, "data")}
	_, talk, code := roux(t, env, "run", write(t, "bulky.yaml", bulky))
	if code != fault.ExitInternal || !strings.Contains(talk, "STORE_FULL") {
		t.Errorf("exit %d\n%s", code, talk)
	}
}

func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
}

// A data directory that cannot be written: exit 5 and the path.
func TestReadOnlyDataDir(t *testing.T) {
	recipe := write(t, "small.yaml", small)
	check := func(t *testing.T, env []string) {
		t.Helper()
		for _, args := range [][]string{{"run", recipe}, {"resume"}, {"runs", "retry", "@last"}} {
			_, talk, code := roux(t, env, args...)
			if code != fault.ExitForbidden || !strings.Contains(talk, "STORE_READ_ONLY") || !strings.Contains(talk, "cannot be written") {
				t.Errorf("roux %s: exit %d\n%s", args[0], code, talk)
			}
		}
	}
	t.Run("disk", func(t *testing.T) {
		disk, remount := mount(t, "size=40m")
		env := []string{"ROUX_DATA=" + filepath.Join(disk, "data")}
		if _, talk, code := roux(t, env, "run", recipe); code != 0 {
			t.Fatalf("exit %d\n%s", code, talk)
		}
		remount("ro")
		check(t, env)
	})
	t.Run("permissions", func(t *testing.T) {
		if os.Geteuid() == 0 {
			t.Skip("permissions do not bind this user: run as another than root")
		}
		dir := t.TempDir()
		env := []string{"ROUX_DATA=" + dir}
		if _, talk, code := roux(t, env, "run", recipe); code != 0 {
			t.Fatalf("exit %d\n%s", code, talk)
		}
		if err := os.Chmod(dir, 0o500); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
		check(t, env)
	})
}
