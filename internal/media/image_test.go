// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"context"
	"errors"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
)

// made carries out work on an image in the child and decodes what comes out.
func made(t testing.TB, r *Reader, data []byte, opts ImageOptions) (image.Image, []byte, error) {
	t.Helper()
	job, err := r.Image(bytes.NewReader(data), int64(len(data)), opts)
	if err != nil {
		return nil, nil, err
	}
	var out bytes.Buffer
	if err := job.Run(context.Background(), &out); err != nil {
		return nil, nil, err
	}
	m, err := codecs[job.Format].decode(bytes.NewReader(out.Bytes()))
	if err != nil {
		t.Fatalf("the result cannot be decoded: %v", err)
	}
	if m.Bounds() != image.Rect(0, 0, job.Width, job.Height) {
		t.Fatalf("result %v, announced %d × %d", m.Bounds(), job.Width, job.Height)
	}
	return m, out.Bytes(), nil
}

// undecoded are the shared images that cannot be decoded, and how each fails.
var undecoded = map[string]struct {
	code fault.Code
	says string
}{
	"images/bad-crc.png":                      {fault.FileInvalid, "damaged"},
	"images/truncated.png":                    {fault.FileInvalid, "cut off"},
	"images/truncated.jpeg":                   {fault.FileInvalid, "cut off"},
	"images/bomb-20000x20000-1bit.png":        {fault.FileTooLarge, "20000 × 20000 = 400 million pixels: at most 50 million"},
	"images/lies-65000x65000-header-only.png": {fault.FileTooLarge, "65000 × 65000 = 4225 million pixels: at most 50 million"},
}

// X159, X160: of every shared image the header's size and orientation, as other
// tools measured them; a thumbnail of each sound one, a typed error for the
// others.
func TestX159_X160_SharedImages(t *testing.T) {
	dir, facts := sharedData(t)
	r := New(Config{})
	seen := 0
	for name, f := range facts {
		if !strings.HasPrefix(name, "images/") {
			continue
		}
		seen++
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			info, err := ImageInfo(bytes.NewReader(data), int64(len(data)))
			if err != nil || info.Width != f.Width || info.Height != f.Height || info.Orientation != max(f.Orientation, 1) {
				t.Fatalf("%+v, %v, want %d × %d, orientation %d", info, err, f.Width, f.Height, f.Orientation)
			}
			if w, h := info.Shown(); f.ShownWidth > 0 && (w != f.ShownWidth || h != f.ShownHeight) {
				t.Errorf("shown %d × %d, want %d × %d", w, h, f.ShownWidth, f.ShownHeight)
			}
			start := time.Now()
			m, _, err := made(t, r, data, ImageOptions{Width: 40, Height: 40, Format: "png"})
			if bad, ok := undecoded[name]; ok {
				if !errors.Is(err, bad.code) || !strings.Contains(err.Error(), bad.says) {
					t.Errorf("error = %v, want %s with %q", err, bad.code, bad.says)
				}
				if took := time.Since(start); bad.code == fault.FileTooLarge && took > 50*time.Millisecond {
					t.Errorf("took %v to refuse", took)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			keep(t, filepath.Base(name)+".png", m)
		})
	}
	if seen != 18 {
		t.Errorf("%d images, want 18", seen)
	}
}

// keep writes a picture for people to look at, when ROUX_KEEP names a directory.
func keep(t testing.TB, name string, m image.Image) {
	dir := os.Getenv("ROUX_KEEP")
	if dir == "" {
		return
	}
	var out bytes.Buffer
	if err := png.Encode(&out, m); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}
