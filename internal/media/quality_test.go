// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	"golang.org/x/text/unicode/norm"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/media/pdf"
	"github.com/roux-engine/roux/internal/media/pdftest"
)

var (
	rewrite = flag.Bool("rewrite", false, "write docs/pdf-quality.md from what is measured")
	dump    = flag.String("dump", "", "write the Markdown of every PDF that is measured into this folder, to be read by eye")
)

// rendered returns the text that a Markdown reader shows.
func rendered(t testing.TB, markdown string) string {
	t.Helper()
	var out bytes.Buffer
	if err := goldmark.New(goldmark.WithExtensions(extension.GFM)).Convert([]byte(markdown), &out); err != nil {
		t.Fatal(err)
	}
	text := inlineTags.ReplaceAllString(out.String(), "")
	text = html.UnescapeString(anyTag.ReplaceAllString(text, " "))
	for _, number := range listNumber.FindAllStringSubmatch(markdown, -1) {
		text += " " + number[1] // browsers show the number, though it is not in the HTML
	}
	return text
}

var (
	inlineTags = regexp.MustCompile(`</?(strong|em|code|a)( [^>]*)?>`)
	listNumber = regexp.MustCompile(`(?m)^ *([0-9]+[.)]) `)
	anyTag     = regexp.MustCompile(`<[^>]*>`)
)

// wordsOf counts the words of a text, normalized and without invisible
// direction marks. A word is delimited by white space and has a letter or a
// digit.
func wordsOf(text string) map[string]int {
	words := map[string]int{}
	text = strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Cf, r) {
			return -1
		}
		return r
	}, norm.NFKC.String(text))
	for w := range strings.FieldsSeq(text) {
		if strings.IndexFunc(w, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }) >= 0 {
			words[w]++
		}
	}
	return words
}

// recall returns the share of the wanted words that were found, each counted as
// often as it occurs, and the number of wanted words.
func recall(want, got map[string]int) (share float64, total int) {
	hit := 0
	for w, n := range want {
		total += n
		hit += min(n, got[w])
	}
	if total == 0 {
		return 1, 0
	}
	return float64(hit) / float64(total), total
}

func pdftotext(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("pdftotext")
	if err != nil {
		t.Skip("pdftotext is not installed (Debian: poppler-utils), so there is nothing to compare words with")
	}
	return path
}

// ownPDFs are documents of the project: one page for each feature of the layout
// tests.
func ownPDFs(t testing.TB) map[string][]byte {
	var columns, table, styles, hyphens pdftest.Page
	columns.Centred("F2", 20, 60, 535, 760, "A Heading Across Both Columns")
	columns.Column("F1", 10, 60, 700, 230, pdftest.Prose("first", 9))
	columns.Column("F1", 10, 305, 700, 230, pdftest.Prose("second", 9))
	columns.Centred("F1", 9, 60, 535, 40, "7")
	for i, row := range [][]string{{"Quarter", "Crossings"}, {"January to March", "1,846"}, {"April to June", "2,010"}} {
		table.Text("F1", 10, 60, 700-18*float64(i), row[0]).Text("F1", 10, 300, 700-18*float64(i), row[1])
	}
	styles.Text("F2", 24, 60, 780, "Styles").Text("F3", 10, 60, 740, "slanted").Text("F4", 10, 200, 700, "code(x)").Text("F1", 10, 60, 680, "• item one")
	hyphens.Text("F1", 10, 60, 700, "a word that is divi-").Text("F1", 10, 60, 688, "ded at the end of its line.")
	return map[string][]byte{
		"examples/report.pdf": report(t),
		"two columns":         pdftest.Pages(columns.String()),
		"a table":             pdftest.Pages(table.String()),
		"styles":              pdftest.Pages(styles.String()),
		"divided words":       pdftest.Pages(hyphens.String()),
	}
}

// A measured is a row of the table in docs/pdf-quality.md.
type measured struct {
	name  string
	pages int
	words int
	share float64
	note  string
}

// Minimum word recall. multilingual-3000-words has scripts that other PDF
// readers cannot all order either.
const (
	minRecallLatin        = 0.95
	minRecallMultilingual = 0.85
)

// X160: the share of the words found by poppler's pdftotext that a Markdown
// reader shows.
func TestWordRecall(t *testing.T) {
	if testing.Short() {
		t.Skip("not short: the work is done in child processes, one after the other")
	}
	tool := pdftotext(t)
	files := ownPDFs(t)
	dir, facts := sharedFacts(t)
	for name := range facts {
		if strings.HasPrefix(name, "pdf/") {
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			files["shared "+name] = data
		}
	}
	var rows []measured
	r := New(Config{})
	for name, data := range files {
		t.Run(name, func(t *testing.T) {
			row := measured{name: name}
			want := popplerWords(t, tool, data)
			doc, err := r.Text(context.Background(), bytes.NewReader(data), TextOptions{})
			if *dump != "" {
				dumpMarkdown(t, name, data, doc, err)
			}
			if err != nil {
				if len(want) > 0 || !isFileFault(err) {
					t.Errorf("%v, but other tools find %d words", err, len(want))
				}
				row.note = "refused: " + string(codeOfError(err))
				rows = append(rows, row)
				return
			}
			got := map[string]int{}
			for _, p := range doc.Pages {
				for w, n := range wordsOf(rendered(t, p.Markdown)) {
					got[w] += n
				}
			}
			row.pages = doc.PageCount
			row.share, row.words = recall(want, got)
			bar := minRecallLatin
			if strings.Contains(name, "multilingual") {
				bar = minRecallMultilingual
			}
			if row.share < bar {
				t.Errorf("recall %.4f of %d words, want %v", row.share, row.words, bar)
			}
			if doc.Repaired {
				row.note = "damaged, repaired"
			}
			rows = append(rows, row)
		})
	}
	slices.SortFunc(rows, func(a, b measured) int { return strings.Compare(a.name, b.name) })
	checkQualityPage(t, rows, len(facts) > 0)
}

func popplerWords(t *testing.T, tool string, data []byte) map[string]int {
	t.Helper()
	file := filepath.Join(t.TempDir(), "in.pdf")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	out, _ := exec.Command(tool, "-enc", "UTF-8", file, "-").Output() // on broken files it fails and prints nothing
	return wordsOf(string(out))
}

func codeOfError(err error) fault.Code {
	for _, code := range fileFaults {
		if strings.Contains(err.Error(), string(code)) {
			return code
		}
	}
	return fault.InternalError
}

const (
	qualityBegin = "<!-- measured by TestWordRecall; go test ./internal/media -run TestWordRecall -rewrite -->\n"
	qualityEnd   = "<!-- end -->\n"
)

// checkQualityPage compares the measurements with the page that publishes them.
func checkQualityPage(t *testing.T, rows []measured, complete bool) {
	t.Helper()
	path := filepath.Join("..", "..", "docs", "pdf-quality.md")
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(page), qualityBegin)
	table, foot, ok2 := strings.Cut(rest, qualityEnd)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", path)
	}
	published := map[string]float64{}
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		var share float64
		if len(cells) > 4 {
			if _, err := fmt.Sscan(cells[4], &share); err == nil {
				published[strings.TrimSpace(cells[1])] = share
			}
		}
	}
	var out strings.Builder
	out.WriteString("| file | pages | words of pdftotext | recall | |\n| --- | --- | --- | --- | --- |\n")
	for _, r := range rows {
		if strings.HasPrefix(r.note, "refused") {
			fmt.Fprintf(&out, "| %s | | | | %s |\n", r.name, r.note)
			continue
		}
		fmt.Fprintf(&out, "| %s | %d | %d | %.3f | %s |\n", r.name, r.pages, r.words, r.share, r.note)
		// Results differ slightly between versions of poppler.
		if p, ok := published[r.name]; !*rewrite && (!ok || p-r.share > 0.01 || r.share-p > 0.03) {
			t.Errorf("%s: measured %.3f, docs/pdf-quality.md says %.3f: run this test with -rewrite and read the difference", r.name, r.share, p)
		}
	}
	if *rewrite {
		if !complete {
			t.Fatal("without the shared files the table would lose rows")
		}
		if err := os.WriteFile(path, []byte(head+qualityBegin+out.String()+qualityEnd+foot), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func dumpMarkdown(t *testing.T, name string, data []byte, doc pdf.Document, err error) {
	t.Helper()
	var out strings.Builder
	for _, p := range doc.Pages {
		fmt.Fprintf(&out, "\n\n=== page %d %s\n%s", p.Number, p.Problem, p.Markdown)
	}
	if err != nil {
		out.WriteString(err.Error())
	}
	base := filepath.Join(*dump, strings.TrimSuffix(strings.ReplaceAll(filepath.Base(name), " ", "-"), ".pdf"))
	if err := errorsOf(os.WriteFile(base+".md", []byte(out.String()), 0o600), os.WriteFile(base+".pdf", data, 0o600)); err != nil {
		t.Fatal(err)
	}
}

func errorsOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
