// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"io/fs"
	"log"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/egress"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const body = "steps: [{transform: {expression: '1'}}]\n"

// serve serves over https, and returns the URL and a Fetcher that trusts the server.
func serve(t *testing.T, handler http.Handler) (string, *Fetcher) {
	t.Helper()
	srv := httptest.NewUnstartedServer(handler)
	srv.Config.ErrorLog = log.New(testLog{t}, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	pool := x509.NewCertPool()
	pool.AddCert(srv.Certificate())
	client := egress.New(egress.Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, RootCAs: pool})
	t.Cleanup(client.Close)
	return srv.URL, New(Config{HTTP: client, Cache: t.TempDir()})
}

type testLog struct{ t *testing.T }

func (l testLog) Write(p []byte) (int, error) { l.t.Log(string(p)); return len(p), nil }

func parse(t *testing.T, text string) *Source {
	t.Helper()
	s, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// unpacked returns the files that a source was unpacked to.
func unpacked(t *testing.T, g *Fetched) (map[string]string, error) {
	t.Helper()
	dir := t.TempDir()
	err := g.Unpack(dir)
	files := map[string]string{}
	if walked := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		files[filepath.ToSlash(rel)] = string(text)
		return err
	}); walked != nil {
		t.Fatal(walked)
	}
	return files, err
}

func TestParse(t *testing.T) {
	pin := strings.Repeat("ab", 32)
	for _, tt := range []struct{ text, kind, name, pin, wrong string }{
		{"recipes", Directory, "recipes", "", ""},
		{"a#b", Directory, "a#b", "", ""},
		{"x/recipes.tar.gz", Package, "x/recipes.tar.gz", "", ""},
		{"recipes.tgz#sub&sha256=" + pin, Package, "recipes.tgz#sub", pin, ""},
		{"https://h.example/r.yaml#sha256=" + pin, Text, "https://h.example/r.yaml", pin, ""},
		{"https://h.example/r.tar.gz?x=1#a/b", Package, "https://h.example/r.tar.gz?x=1#a/b", "", ""},
		{"git+https://h.example/o/r", Git, "git+https://h.example/o/r", "", ""},
		{"git+https://h.example/o/r@release/1.0#recipes&sha256=" + pin, Git, "git+https://h.example/o/r@release/1.0#recipes", pin, ""},
		{"git+https://h.example/o/r#a%26b%25c%3Dd", Git, "git+https://h.example/o/r#a%26b%25c%3Dd", "", ""},
		{"git+https://h.example/o/r#sha256=" + pin, Git, "git+https://h.example/o/r", pin, ""},
		{"http://h.example/r.yaml", "", "", "", `"http://" is refused`},
		{"git+ssh://h.example/o/r", "", "", "", `"git+ssh://" is refused`},
		{"git+file:///etc", "", "", "", `"git+file://" is refused`},
		{"file:///etc/passwd", "", "", "", `"file://" is refused`},
		{"https://user:secret@h.example/r.yaml", "", "", "", "user or password"},
		{"git+https://user:secret@h.example/o/r", "", "", "", "user or password"},
		{"git+https://h.example/o/r@--upload-pack=x", "", "", "", "ref"},
		{"git+https://h.example/o/r@a..b", "", "", "", "ref"},
		{"git+https://h.example", "", "", "", "no repository"},
		{"git+https://h.example/o/r#../x", "", "", "", "Path traversal not allowed"},
		{"git+https://h.example/o/r#%2e%2e/x", "", "", "", "Path traversal not allowed"},
		{"git+https://h.example/o/r#/etc", "", "", "", "Path traversal not allowed"},
		{"https://h.example/r.yaml#sha256=ab", "", "", "", "no hash"},
		{"https://h.example/r.yaml#dir", "", "", "", "no directory"},
		{"git+https://h.example/o/r#a&b", "", "", "", "one too many"},
	} {
		s, err := Parse(tt.text)
		switch {
		case tt.wrong != "":
			if fault.CodeOf(err) != fault.Usage || !strings.Contains(fault.Message(err), tt.wrong) || strings.Contains(fault.Message(err), "secret") {
				t.Errorf("%s: %v, want %q", tt.text, err, tt.wrong)
			}
		case err != nil:
			t.Errorf("%s: %v", tt.text, err)
		case s.Kind != tt.kind || s.Name() != tt.name || s.Pin != tt.pin:
			t.Errorf("%s: %s %s %s", tt.text, s.Kind, s.Name(), s.Pin)
		default: // the name is in the lock, and read from there
			if again, err := Parse(s.Name()); err != nil || again.Sub != s.Sub || again.Name() != s.Name() {
				t.Errorf("%s is read again as %+v, %v", s.Name(), again, err)
			}
		}
	}
}

// A source that is not pinned, or has changed, is refused; both hashes are named. What was
// pinned is had again when the server has something else, and when it is gone.
func TestPinned(t *testing.T) {
	text := "name: a\n" + body
	base, f := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/a.yaml" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(text))
	}))
	s := parse(t, base+"/a.yaml?token=hidden")
	sum := sha256.Sum256([]byte(text))
	pin := hex.EncodeToString(sum[:])
	_, err := f.Pinned(t.Context(), s, "")
	if fault.CodeOf(err) != fault.Conflict || !strings.Contains(fault.Message(err), "is not pinned") || !strings.Contains(fault.Message(err), "found sha256="+pin) || !strings.Contains(fault.RemedyOf(err), "roux lock") {
		t.Errorf("without a hash: %v", err)
	}
	if strings.Contains(fault.Message(err), "hidden") {
		t.Errorf("the message has the query: %v", err)
	}
	got, err := f.Pinned(t.Context(), s, pin)
	if err != nil {
		t.Fatal(err)
	}
	if files, err := unpacked(t, got); err != nil || len(files) != 1 || files["a.yaml"] != text {
		t.Errorf("unpacked %v, %v", files, err)
	}
	text += "# changed\n"
	other := strings.Repeat("0", 64)
	if _, err = f.Pinned(t.Context(), s, other); fault.CodeOf(err) != fault.Conflict || !strings.Contains(fault.Message(err), "expected sha256="+other+", found sha256=") {
		t.Errorf("another hash: %v", err)
	}
	if _, err = f.Pinned(t.Context(), s, pin); err != nil {
		t.Errorf("what is kept is not had again: %v", err)
	}
	if latest, err := f.Latest(t.Context(), s); err != nil || latest.Hash == pin || latest.Check(pin) == nil {
		t.Errorf("the latest is %v, %v", latest, err)
	}
	if err := os.WriteFile(filepath.Join(f.cfg.Cache, pin), []byte("evil: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err = f.Pinned(t.Context(), s, pin); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("a changed file of the cache was taken: %v", err)
	}
	if _, err = f.Pinned(t.Context(), parse(t, base+"/gone.yaml"), pin); fault.CodeOf(err) != fault.HTTPStatus {
		t.Errorf("gone: %v", err)
	}
}

// Addresses that are not public are refused, as for actions.
func TestEgressGuards(t *testing.T) {
	base, _ := serve(t, http.NotFoundHandler())
	client := egress.New(egress.Config{})
	t.Cleanup(client.Close)
	f := New(Config{HTTP: client})
	for _, text := range []string{base + "/a.yaml", base + "/a.tar.gz", "git+" + base + "/r"} {
		if _, err := f.Latest(t.Context(), parse(t, text)); fault.CodeOf(err) != fault.EgressRefused {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// An entry of a package.
type entry struct {
	name string
	kind byte
	link string
	text string
}

func pack(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	for _, e := range entries {
		if e.kind == 0 {
			e.kind = tar.TypeReg
		}
		if err := w.WriteHeader(&tar.Header{Name: e.name, Typeflag: e.kind, Linkname: e.link, Size: int64(len(e.text)), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(e.text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// X241: recipes come from a package.
func TestPackage(t *testing.T) {
	content := pack(t, entry{name: "r-1/", kind: tar.TypeDir}, entry{name: "r-1/README.md", text: "x"}, entry{name: "r-1/recipes/a.yaml", text: "name: a\n" + body},
		entry{name: "r-1/recipes/lenses/l.yaml", text: "id: l\n"}, entry{name: "other.json", text: "{}"})
	base, f := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(content) }))
	file := filepath.Join(t.TempDir(), "r.tar.gz")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, where := range []string{base + "/r.tar.gz", file} {
		got, err := f.Latest(t.Context(), parse(t, where+"#r-1/recipes"))
		if err != nil {
			t.Fatal(err)
		}
		files, err := unpacked(t, got)
		if err != nil || len(files) != 2 || files["a.yaml"] == "" || files["lenses/l.yaml"] == "" {
			t.Errorf("%s: %v, %v", where, files, err)
		}
	}
	got, err := f.Latest(t.Context(), parse(t, file+"#nowhere"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unpacked(t, got); fault.CodeOf(err) != fault.RecipeNotFound {
		t.Errorf("a directory that is not there: %v", err)
	}
}

// A31: hostile packages are refused, and write nothing outside of their directory.
func TestHostilePackages(t *testing.T) {
	many := make([]entry, maxKept+1)
	entries := make([]entry, maxEntries+1)
	for i := range many {
		many[i] = entry{name: fmt.Sprintf("%d.yaml", i)}
	}
	for i := range entries {
		entries[i] = entry{name: fmt.Sprintf("%d.txt", i)}
	}
	cut := pack(t, entry{name: "a.yaml", text: strings.Repeat("x", 5000)})
	for name, tt := range map[string]struct {
		content []byte
		code    fault.Code
		want    string
	}{
		"up":            {pack(t, entry{name: "../a.yaml", text: "x"}), fault.FileInvalid, "Path traversal not allowed"},
		"up inside":     {pack(t, entry{name: "a/../../a.yaml", text: "x"}), fault.FileInvalid, "Path traversal not allowed"},
		"absolute":      {pack(t, entry{name: "/tmp/a.yaml", text: "x"}), fault.FileInvalid, "Path traversal not allowed"},
		"backslash":     {pack(t, entry{name: `..\a.yaml`, text: "x"}), fault.FileInvalid, "no path"},
		"drive":         {pack(t, entry{name: "C:a.yaml", text: "x"}), fault.FileInvalid, "no path"},
		"link":          {pack(t, entry{name: "l", kind: tar.TypeSymlink, link: "/etc"}, entry{name: "l/a.yaml", text: "x"}), fault.FileInvalid, "is a link"},
		"link to file":  {pack(t, entry{name: "a.yaml", kind: tar.TypeSymlink, link: "/etc/passwd"}), fault.FileInvalid, "is a link"},
		"hard link":     {pack(t, entry{name: "a.yaml", kind: tar.TypeLink, link: "/etc/passwd"}), fault.FileInvalid, "is a link"},
		"device":        {pack(t, entry{name: "a.yaml", kind: tar.TypeChar}), fault.FileInvalid, "neither"},
		"pipe":          {pack(t, entry{name: "a.yaml", kind: tar.TypeFifo}), fault.FileInvalid, "neither"},
		"twice":         {pack(t, entry{name: "a.yaml", text: "x"}, entry{name: "./a.yaml", text: "y"}), fault.FileInvalid, "two files"},
		"file as dir":   {pack(t, entry{name: "a.yaml", text: "x"}, entry{name: "a.yaml/b.yaml", text: "y"}), fault.FileInvalid, "cannot be written"},
		"many texts":    {pack(t, many...), fault.FileInvalid, "more than 1000 files"},
		"many entries":  {pack(t, entries...), fault.FileInvalid, "more than 10000 entries"},
		"bomb":          {pack(t, entry{name: "a.txt", text: strings.Repeat("\x00", 40<<20)}), fault.FileTooLarge, "unpacks to more than"},
		"large text":    {pack(t, entry{name: "a.yaml", text: strings.Repeat("abcdefgh", maxText/8+1)}), fault.FileTooLarge, "has"},
		"not gzip":      {[]byte("name: a\n"), fault.FileInvalid, "not compressed"},
		"cut off":       {cut[:len(cut)-20], fault.FileInvalid, "damaged"},
		"nothing":       {pack(t), fault.RecipeNotFound, "no file of YAML"},
		"only no texts": {pack(t, entry{name: "a.txt"}), fault.RecipeNotFound, "no file of YAML"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			inner := filepath.Join(dir, "in")
			if err := os.Mkdir(inner, 0o700); err != nil {
				t.Fatal(err)
			}
			g := &Fetched{Source: &Source{Kind: Package, Where: "r.tar.gz"}, content: tt.content}
			if err := g.Unpack(inner); fault.CodeOf(err) != tt.code || !strings.Contains(fault.Message(err), tt.want) {
				t.Errorf("%v, want %s %q", err, tt.code, tt.want)
			}
			if list, _ := os.ReadDir(dir); len(list) != 1 {
				t.Errorf("it has written outside: %v", list)
			}
		})
	}
}

// A repo is a Git repository behind a real smart server.
type repo struct {
	t   *testing.T
	dir string
}

func newRepo(t *testing.T) *repo {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("there is no program git here")
	}
	r := &repo{t, filepath.Join(t.TempDir(), "r")}
	if err := os.Mkdir(r.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r.git("init", "-q", "-b", "main")
	return r
}

func (r *repo) git(args ...string) string {
	r.t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"}, args...)...)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull)
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (r *repo) commit(files map[string]string) string {
	r.t.Helper()
	for name, text := range files {
		at := filepath.Join(r.dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			r.t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			r.t.Fatal(err)
		}
	}
	r.git("add", "-A")
	r.git("commit", "-q", "-m", "x")
	return r.git("rev-parse", "HEAD")
}

// handler is git http-backend.
func (r *repo) handler() http.Handler {
	at := filepath.Join(r.git("--exec-path"), "git-http-backend")
	if _, err := os.Stat(at); err != nil {
		r.t.Skip("there is no git http-backend here")
	}
	return &cgi.Handler{Path: at, Env: []string{"GIT_PROJECT_ROOT=" + filepath.Dir(r.dir), "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"}, Stderr: testLog{r.t}}
}

// X241: recipes come from a Git repository, at what a reference stood for.
func TestGit(t *testing.T) {
	r := newRepo(t)
	first := r.commit(map[string]string{
		"README.md": "x", "recipes/a.yaml": "name: a\n" + body, "recipes/lenses/l.yaml": "id: l\n", "other.yaml": "name: o\n" + body,
		// None of this may have an effect.
		".gitattributes": "*.yaml filter=evil export-ignore\n", ".gitmodules": "[submodule \"m\"]\n\tpath = m\n\turl = file:///etc\n",
	})
	r.git("tag", "v1")
	if err := os.Symlink("/etc/passwd", filepath.Join(r.dir, "recipes", "link.yaml")); err != nil {
		t.Skip("making links needs a privilege on Windows: " + err.Error())
	}
	second := r.commit(map[string]string{"recipes/a.yaml": "name: a\nversion: 2.0.0\n" + body})
	r.git("branch", "release/2")
	base, f := serve(t, r.handler())
	var hashes []string
	for _, tt := range []struct{ at, commit, text string }{
		{"", second, "2.0.0"}, {"@v1", first, ""}, {"@release/2", second, "2.0.0"}, {"@" + first, first, ""}, {"@main", second, "2.0.0"},
	} {
		got, err := f.Latest(t.Context(), parse(t, "git+"+base+"/r"+tt.at+"#recipes"))
		if err != nil {
			t.Fatalf("%s: %v", tt.at, err)
		}
		files, err := unpacked(t, got)
		if err != nil || len(files) != 2 || files["lenses/l.yaml"] == "" || strings.Contains(files["a.yaml"], "2.0.0") != (tt.text != "") || got.Commit != tt.commit {
			t.Errorf("%s: %v, %s, %v", tt.at, files, got.Commit, err)
		}
		hashes = append(hashes, got.Hash)
	}
	if hashes[0] != hashes[2] || hashes[1] != hashes[3] || hashes[0] == hashes[1] {
		t.Errorf("hashes %q", hashes)
	}
	// The hash is of names and texts alone, and stays in later releases.
	if want := "ab44698779cdbece31c5"; hashes[1][:20] != want {
		t.Errorf("the hash is %s, want %s…", hashes[1], want)
	}
	pinned := parse(t, "git+"+base+"/r@v1#recipes&sha256="+hashes[1])
	if _, err := f.Pinned(t.Context(), pinned, ""); err != nil {
		t.Fatal(err)
	}
	r.git("tag", "-f", "v1")
	if _, err := f.Pinned(t.Context(), pinned, ""); err != nil {
		t.Errorf("what is kept: %v", err)
	}
	f.cfg.Cache = ""
	if _, err := f.Pinned(t.Context(), pinned, ""); fault.CodeOf(err) != fault.Conflict || !strings.Contains(fault.Message(err), "found sha256="+hashes[0]) {
		t.Errorf("a tag that was moved: %v", err)
	}
	for at, code := range map[string]fault.Code{"/r@gone": fault.ServiceUnavailable, "/none": fault.RecipeNotFound} {
		_, err := f.Latest(t.Context(), parse(t, "git+"+base+at))
		if fault.CodeOf(err) != code || strings.Contains(fault.Message(err), "http://127.0.0.1") {
			t.Errorf("%s: %v, want %s", at, err, code)
		}
	}
}

// A server that sends without end, or moves, is refused.
func TestHostileGitServers(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("there is no program git here")
	}
	base, f := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/moved") {
			http.Redirect(w, r, "https://elsewhere.example/r", http.StatusFound)
			return
		}
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		_, _ = w.Write([]byte("001e# service=git-upload-pack\n0000000eversion 2\n"))
		line := []byte("fff0" + strings.Repeat("x", 0xfff0-4))
		for r.Context().Err() == nil {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
	}))
	if _, err := f.Latest(t.Context(), parse(t, "git+"+base+"/moved")); fault.CodeOf(err) != fault.HTTPStatus || !strings.Contains(fault.Message(err), "moved") {
		t.Errorf("moved: %v", err)
	}
	if _, err := f.Latest(t.Context(), parse(t, "git+"+base+"/endless")); err == nil {
		t.Error("an endless answer was taken")
	} else {
		t.Log(err)
	}
}

// The text of a lock is the same for the same content in any order, is read again, and says all that
// is wrong with it.
func TestLock(t *testing.T) {
	h := func(c string) string { return strings.Repeat(c, 64) }
	l := &Lock{
		Sources: []LockedSource{{Source: "https://h/b.yaml", SHA256: h("b")}, {Source: "git+https://h/r@v1#x", Commit: h("c")[:40], SHA256: h("a")}},
		References: []LockedReference{
			{Kind: Recipe, Ref: "b@1", Version: "1.0.0", SHA256: h("1")}, {Kind: Lens, Ref: "l", Version: "2", SHA256: h("2")},
			{Kind: Recipe, Ref: "recipe_a", Name: "a", Version: "0.0.0", SHA256: h("3"), Files: h("4")},
		},
	}
	text := string(l.Text())
	again, _, diags := ParseLock("roux.lock", l.Text())
	if again == nil || string(again.Text()) != text {
		t.Fatalf("%v\n%s", diags, text)
	}
	for _, tt := range []struct {
		found LockedReference
		want  string
	}{
		{LockedReference{Kind: Recipe, Ref: "b@1", Version: "1.0.0", SHA256: h("1")}, ""},
		{LockedReference{Kind: Recipe, Ref: "b@1", Version: "1.0.1", SHA256: h("4")}, "expects version 1.0.0 with sha256=" + h("1") + ", found version 1.0.1 with sha256=" + h("4")},
		{LockedReference{Kind: Recipe, Ref: "l", Version: "2", SHA256: h("2")}, "is not in roux.lock"},
	} {
		err := again.Check(tt.found)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(fault.Message(err), tt.want) {
			t.Errorf("%v: %v", tt.found, err)
		}
	}
	for _, tt := range []struct {
		kind, name, version, sum string
		draft                    bool
		want                     string // of the refusal
	}{
		{Recipe, "b", "1.0.0", h("1"), false, ""},
		{Recipe, "b", "1.0.0", h("9"), false, "version 1.0.0 of the recipe \"b\" has changed"}, // another text of a version
		{Recipe, "b", "1.0.0", h("9"), true, "has changed"},
		{Recipe, "b", "1.0.1", h("9"), false, "\"b@1\" stands for version 1.0.0 there"},
		{Recipe, "b", "1.0.1", h("9"), true, ""},
		{Recipe, "b", "1.1.0-rc.1", h("9"), false, ""}, // a range has no pre-releases
		{Recipe, "b", "0.9.0", h("9"), false, ""},
		{Recipe, "b", "2.0.0", h("9"), false, ""},
		{Recipe, "c", "1.0.0", h("9"), false, ""},
		{Recipe, "a", "0.0.0", h("9"), false, "has changed"}, // which the step names by its id
		{Lens, "l", "2", h("9"), false, "version 2 of the lens"},
		{Lens, "l", "1", h("9"), false, ""},
		{Lens, "l", "10", h("9"), false, "stands for version 2 there"},
		{Lens, "l", "", h("9"), false, "stands for version 2 there"},
		{Lens, "l", "", h("2"), false, ""},
	} {
		err := again.CheckText(LockedReference{Kind: tt.kind, Name: tt.name, Version: tt.version, SHA256: tt.sum}, tt.draft)
		if (err == nil) != (tt.want == "") || err != nil && (fault.CodeOf(err) != fault.Conflict || !strings.Contains(fault.Message(err), tt.want)) {
			t.Errorf("%s %s@%s, %v: %v, want %q", tt.kind, tt.name, tt.version, tt.draft, err, tt.want)
		}
	}
	included := LockedReference{Kind: Recipe, Ref: "recipe_a", Name: "a", Version: "0.0.0", SHA256: h("3"), Files: h("5")}
	if err := again.Check(included); !strings.Contains(fault.Message(err), "a file that the recipe \"recipe_a\" includes has changed: roux.lock expects files="+h("4")) {
		t.Errorf("another file that a text includes: %v", err)
	}
	again.Set(&Fetched{Source: &Source{Kind: Text, Where: "https://h/b.yaml"}, Hash: h("f")})
	changed, lines := strings.Split(string(again.Text()), "\n"), 0
	for i, line := range strings.Split(text, "\n") {
		if changed[i] != line {
			lines++
		}
	}
	if lines != 1 {
		t.Errorf("one change touches %d lines:\n%s", lines, again.Text())
	}
	for _, wrong := range []struct {
		text string
		want int
	}{
		{"lock: 2\n", 1}, {"sources: []\n", 1}, {"", 1}, {"[1]", 1},
		{"lock: 1\nsources:\n  - {source: a, sha256: b}\n  - {sorce: a}\n", 4},
		{"lock: 1\nreferences: [{kind: x, ref: a, version: '1', sha256: " + h("a") + "}]", 1},
	} {
		if l, _, diags := ParseLock("roux.lock", []byte(wrong.text)); l != nil || len(diags) < min(wrong.want, 2) {
			t.Errorf("%q: %v", wrong.text, diags)
		}
	}
}
