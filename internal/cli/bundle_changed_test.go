// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/bundle"
)

// writeTemp writes a file of the test's own.
func writeTemp(t *testing.T, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "b.zip")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Whatever is changed in a bundle is refused: a byte of the file, or a member,
// which is named.
func TestChangedBundlesAreRefused(t *testing.T) {
	whole := exportedBundle(t)
	if _, err := readBundle(writeTemp(t, whole), false); err != nil {
		t.Fatal(err)
	}
	good := parts(t, whole)
	r := rand.New(rand.NewPCG(3, 4))
	refused := func(what, name string, path string) {
		t.Helper()
		_, err := readBundle(path, false)
		if fault.CodeOf(err) != fault.FileInvalid || !strings.Contains(fault.Message(err), name) {
			t.Errorf("%s: %v, want FILE_INVALID that names %q", what, err, name)
		}
	}
	for i := range 150 {
		data := bytes.Clone(whole)
		at := r.IntN(len(data))
		data[at] ^= 1 << r.IntN(8)
		refused(fmt.Sprintf("bit flip %d at byte %d", i, at), "", writeTemp(t, data))
	}
	names := []string{"plan.json", "journal.bin", "events.jsonl", "manifest.json"}
	for i := range 140 {
		name := names[i%len(names)]
		data := bytes.Clone(good[name])
		at := r.IntN(len(data))
		what := fmt.Sprintf("change %d of %s", i, name)
		switch i / len(names) % 4 {
		case 0:
			data[at] ^= 1 << r.IntN(8)
		case 1:
			data = append(data[:at], data[at+1:]...)
		case 2:
			data = append(data, ' ')
		case 3:
			data = data[:at]
		}
		m := maps.Clone(good)
		m[name] = data
		refused(what, name, packAsIs(t, m))
	}
	for i := range 5 {
		m := maps.Clone(good)
		m[fmt.Sprintf("more-%d.txt", i)] = []byte("more")
		refused("another member", "more-", packAsIs(t, m))
		if i < len(names) {
			m = maps.Clone(good)
			delete(m, names[i])
			refused("a member less", names[i], packAsIs(t, m))
		}
	}
	// The members are unchanged, but the archive around them was packed anew.
	var again bytes.Buffer
	z := zip.NewWriter(&again)
	for _, name := range names {
		w, err := z.Create(name)
		if err == nil {
			_, err = w.Write(good[name])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	refused("packed anew", "packed anew", writeTemp(t, again.Bytes()))
}

// A decompression bomb is refused because of the sizes that it declares, before
// anything is unpacked.
func TestBundleBombs(t *testing.T) {
	good := parts(t, exportedBundle(t))
	sizes := map[string]int{"plan.json": 60 << 20, "journal.bin": 200 << 20, "manifest.json": 1 << 20}
	if testing.Short() {
		delete(sizes, "journal.bin") // left out because packing it takes long
	}
	for name, size := range sizes {
		m := maps.Clone(good)
		m[name] = bytes.Repeat([]byte(" "), size)
		path := packAsIs(t, m)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := readBundle(path, false)
		runtime.ReadMemStats(&after)
		if fault.CodeOf(err) != fault.FileInvalid || !strings.Contains(fault.Message(err), name) {
			t.Errorf("%s: %v", name, err)
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
			t.Errorf("%s: %d bytes were allocated before it was refused", name, got)
		}
	}
}

// A member whose declared size is wrong is refused without allocating that size, even
// if the manifest declares the same size, and even in a bundle without checksums.
func TestBundleSizesThatLie(t *testing.T) {
	good := parts(t, exportedBundle(t))
	for _, tt := range []struct {
		name    string
		version int
		packed  uint64 // 0: as it is
		size    uint64
	}{
		{"larger", bundle.Version, 0, 60_000},
		{"much larger, as is its packed size", bundle.Version, 2 << 20, 200 << 20},
		{"smaller", bundle.Version, 0, 10},
		{"larger, without checksums", bundle.UnhashedVersion, 0, 60_000},
		{"much larger, as is its packed size, without checksums", bundle.UnhashedVersion, 2 << 20, 200 << 20},
		{"smaller, without checksums", bundle.UnhashedVersion, 0, 10},
	} {
		path := writeTemp(t, lyingBundle(t, good, tt.version, tt.packed, tt.size))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := readBundle(path, true)
		runtime.ReadMemStats(&after)
		if fault.CodeOf(err) != fault.FileInvalid || !strings.Contains(fault.Message(err), "journal.bin") {
			t.Errorf("%s: %v", tt.name, err)
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > 4<<20 {
			t.Errorf("%s: %d bytes were allocated before it was refused", tt.name, got)
		}
	}
}

// lyingBundle returns a bundle in which the journal declares a wrong size, and a wrong
// packed size if compressed is larger than the true one.
func lyingBundle(t *testing.T, good map[string][]byte, version int, compressed, size uint64) []byte {
	t.Helper()
	var about bundle.Manifest
	if err := json.Unmarshal(good["manifest.json"], &about); err != nil {
		t.Fatal(err)
	}
	about.Members["journal.bin"] = bundle.Member{Size: int64(size), SHA256: about.Members["journal.bin"].SHA256}
	if about.Version = version; version == bundle.UnhashedVersion {
		about.Members, about.Sum = nil, ""
	}
	sum, err := about.Checksum()
	if err != nil {
		t.Fatal(err)
	}
	if version == bundle.Version {
		about.Sum = sum
	}
	var text, buf, packed bytes.Buffer
	if err := writeJSON(&text, about, true); err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(&buf)
	for name, data := range map[string][]byte{"plan.json": good["plan.json"], "events.jsonl": good["events.jsonl"], "manifest.json": text.Bytes()} {
		w, err := z.Create(name)
		if err == nil {
			_, err = w.Write(data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	fl, err := flate.NewWriter(&packed, flate.DefaultCompression)
	if err == nil {
		_, err = fl.Write(good["journal.bin"])
	}
	if err = errors.Join(err, fl.Close()); err != nil {
		t.Fatal(err)
	}
	w, err := z.CreateRaw(&zip.FileHeader{Name: "journal.bin", Method: zip.Deflate, CRC32: crc32.ChecksumIEEE(good["journal.bin"]),
		CompressedSize64: max(compressed, uint64(packed.Len())), UncompressedSize64: size})
	if err == nil {
		_, err = w.Write(packed.Bytes())
	}
	if err = errors.Join(err, z.SetComment(strings.Repeat("0", bundle.ChecksumBytes)), z.Close()); err != nil {
		t.Fatal(err)
	}
	return sealed(buf.Bytes())
}

// sealed replaces the last bytes of a bundle by the checksum of the bytes before them.
func sealed(data []byte) []byte {
	all := len(data) - bundle.ChecksumBytes
	sum := sha256.Sum256(data[:all])
	return append(data[:all:all], hex.EncodeToString(sum[:])...)
}

// A member that compresses just below the refused ratio, with its true size in the
// manifest, takes the memory that it declares and no more.
func TestBundleTakesWhatItDeclares(t *testing.T) {
	const size = 64 << 20
	m := parts(t, exportedBundle(t))
	m["journal.bin"] = bytes.Repeat([]byte("a"), size)
	r := rand.New(rand.NewPCG(5, 6))
	for at := 0; at < size; at += 600 {
		m["journal.bin"][at], m["journal.bin"][at+1], m["journal.bin"][at+2] = byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32())
	}
	path := pack(t, m)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := readBundle(path, false)
	runtime.ReadMemStats(&after)
	if fault.CodeOf(err) != fault.FileInvalid || !strings.Contains(fault.Message(err), "journal damaged") {
		t.Error(err)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > size+4<<20 {
		t.Errorf("%d bytes were allocated for a journal of %d", got, size)
	}
}

// A bundle with very many members is refused before the list of members is read,
// whatever number the archive declares.
func TestBundleOfManyMembers(t *testing.T) {
	for _, n := range []int{10_000, 300_000} {
		var buf bytes.Buffer
		z := zip.NewWriter(&buf)
		for range n {
			if _, err := z.CreateRaw(&zip.FileHeader{Name: "x"}); err != nil {
				t.Fatal(err)
			}
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		path := writeTemp(t, buf.Bytes())
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := readBundle(path, false)
		runtime.ReadMemStats(&after)
		if fault.CodeOf(err) != fault.FileInvalid || !strings.Contains(fault.Message(err), "list of members") {
			t.Errorf("%d members: %v", n, err)
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > 4<<20 {
			t.Errorf("%d members: %d bytes were allocated before it was refused", n, got)
		}
	}
}

// Text in a bundle that is not UTF-8 is refused, even if all checksums match.
func TestBundleTextIsUTF8(t *testing.T) {
	good := parts(t, exportedBundle(t))
	for name, old := range map[string]string{"plan.json": "no more of", "journal.bin": "once upon"} {
		m := maps.Clone(good)
		changed := bytes.Replace(m[name], []byte(old), append([]byte{0xff}, old[1:]...), 1)
		if bytes.Equal(changed, m[name]) {
			t.Fatalf("%s does not hold %q", name, old)
		}
		m[name] = changed
		if _, err := readBundle(pack(t, m), false); fault.CodeOf(err) != fault.FileInvalid || name == "plan.json" && !strings.Contains(fault.Message(err), "UTF-8") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A bundle of an earlier release has no checksums: it is read when the user says
// so, and marked.
func TestBundleOfAnEarlierRelease(t *testing.T) {
	m := parts(t, exportedBundle(t))
	var about map[string]any
	if err := json.Unmarshal(m["manifest.json"], &about); err != nil {
		t.Fatal(err)
	}
	delete(about, "members")
	delete(about, "sum")
	about["version"] = 1
	text, err := json.Marshal(about)
	if err != nil {
		t.Fatal(err)
	}
	m["manifest.json"] = text
	path := packAsIs(t, m)
	t.Setenv("ROUX_DATA", filepath.Join(t.TempDir(), "data"))
	if _, talk, code := inProcess("", "import", path); code == 0 || !strings.Contains(talk, "--unverified") {
		t.Errorf("exit %d: %s", code, talk)
	}
	if _, talk, code := inProcess("", "import", "--unverified", path); code != 0 {
		t.Fatal(talk)
	}
	if out, _, _ := inProcess("", "runs", "get", "@last"); !strings.Contains(out, "not verified") {
		t.Errorf("runs get does not say that it is not verified: %s", out)
	}
}

// covers fails the test for each command with a RUN argument that is neither in tried,
// the commands that show runs, nor among those that change runs.
func covers(t *testing.T, tried [][]string) {
	t.Helper()
	steers := []string{"roux resume", "roux runs cancel", "roux runs retry", "roux runs signal", "roux runs pause", "roux runs unpause", "roux runs release", "roux runs delete", "roux runs adopt", "roux credits adjust"}
	for _, c := range descendants((&app{getenv: func(string) string { return "" }}).command()) {
		if !strings.Contains(c.Use, "RUN") || slices.Contains(steers, c.CommandPath()) {
			continue
		}
		if !slices.ContainsFunc(tried, func(args []string) bool {
			return strings.HasPrefix("roux "+strings.Join(args, " ")+" ", c.CommandPath()+" ")
		}) {
			t.Errorf("%s shows a run and is not tried", c.CommandPath())
		}
	}
}

// An imported run is marked wherever it is shown, and does not continue here until the
// user adopts it.
func TestImportedRunsAreMarked(t *testing.T) {
	t.Setenv("ROUX_DATA", filepath.Join(t.TempDir(), "data"))
	path := writeTemp(t, exportedBundle(t))
	if _, talk, code := inProcess("", "import", path); code != 0 {
		t.Fatal(talk)
	}
	// Commands that print one value have the mark in it. Those that print a stream of
	// events, lines or bytes print it on standard error.
	bundle := filepath.Join(t.TempDir(), "again.zip")
	values := [][]string{
		{"runs", "list"}, {"runs", "get", "@last"}, {"explain", "@last"}, {"explain", "@last", "talk"}, {"credits", "explain", "@last"}, {"trace", "@last"}, {"trace", "@last", "--flame"},
		{"diff", "@last", "@last"}, {"replay", "@last"}, {"replay", "@last", "--at", "2"}, {"graph", "@last"}, {"graph", "@last", "--critical"},
	}
	streams := [][]string{{"events", "@last"}, {"events", "@last", "-f"}, {"logs", "@last"}, {"export", "@last", "--force", "--out", bundle}}
	var shown [][]string
	for _, args := range values {
		shown = append(shown, args, append(slices.Clone(args), "-o", "json"))
	}
	for _, form := range []string{"svg", "mermaid", "dot"} {
		shown = append(shown, []string{"graph", "@last", "-o", form})
	}
	shown = append(shown, []string{"export", "@last", "--force", "--out", bundle, "-o", "json"}, []string{"__complete", "events", "run_"})
	covers(t, append(slices.Clone(values), streams...))
	for _, args := range shown {
		if out, talk, code := inProcess("", args...); code != 0 || !strings.Contains(out, "imported") {
			t.Errorf("%v: exit %d, does not say imported: %s%s", args, code, out, talk)
		}
	}
	for _, args := range streams {
		for _, form := range []string{"table", "json", "jsonl"} {
			args := append(slices.Clone(args), "-o", form)
			if out, talk, code := inProcess("", args...); code != 0 || !strings.Contains(talk, "imported") {
				t.Errorf("%v: exit %d, does not say imported: %s%s", args, code, out, talk)
			}
			shown = append(shown, args)
		}
	}
	// A bundle exported from the imported run has the mark, too.
	data, err := os.ReadFile(bundle)
	if err != nil {
		t.Fatal(err)
	}
	if about := string(parts(t, data)["manifest.json"]); !strings.Contains(about, `"imported": true`) {
		t.Errorf("the manifest does not say imported: %s", about)
	}
	elsewhere := filepath.Join(t.TempDir(), "data")
	if _, talk, code := inProcess("", "import", bundle, "--data", elsewhere); code != 0 {
		t.Error(talk)
	}
	if out, talk, _ := inProcess("", "runs", "get", "@last", "--data", elsewhere); !strings.Contains(strings.Join(strings.Fields(out), " "), "also where it was exported") {
		t.Errorf("the bundle of an imported run: %s%s", out, talk)
	}
	for _, args := range [][]string{{"runs", "retry", "@last"}, {"runs", "release", "@last"}, {"resume", "@last"}} {
		if _, talk, code := inProcess("", args...); code == 0 || !strings.Contains(talk, "roux runs adopt") {
			t.Errorf("%v: exit %d: %s", args, code, talk)
		}
	}
	if out, talk, code := inProcess("", "doctor"); strings.Contains(out, "quarantined") {
		t.Errorf("doctor: exit %d: %s%s", code, out, talk)
	}
	if _, talk, code := inProcess("", "runs", "adopt", "@last"); code != fault.ExitFailed && code != fault.ExitOK {
		t.Fatalf("adopt: exit %d: %s", code, talk)
	}
	for _, args := range shown {
		if out, talk, code := inProcess("", args...); code != 0 || strings.Contains(out+talk, "imported") {
			t.Errorf("%v: exit %d, still says imported: %s%s", args, code, out, talk)
		}
	}
	if _, talk, code := inProcess("", "runs", "adopt", "@last"); code != fault.ExitConflict {
		t.Errorf("adopted twice: exit %d: %s", code, talk)
	}
	if _, talk, _ := inProcess("", "runs", "retry", "@last"); strings.Contains(talk, "adopt") {
		t.Errorf("retry after adopt: %s", talk)
	}
}
