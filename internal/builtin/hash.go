// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"context"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"hash"
	"hash/crc32"
	"io"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
)

// hashes are the algorithms. MD5, SHA-1 and CRC-32 are for comparison with
// published checksums; they do not protect against an attacker.
var hashes = map[string]func() hash.Hash{
	"sha256": sha256.New, "sha512": sha512.New, "sha1": sha1.New, "md5": md5.New,
	"crc32": func() hash.Hash { return crc32.NewIEEE() },
}

// hashAction returns the action hash, which computes the checksum of a file or
// text.
func hashAction() action.Action {
	return action.Action{
		Name:        "hash",
		Version:     "1.0.0",
		Description: "Computes the checksum of a file or text.",
		Cost:        1,
		Input: schema(`{
			"type": "object",
			"properties": {
				"text": {"type": "string", "description": "A text, hashed as UTF-8."},
				"file": {"type": "string", "format": "file", "pattern": "^sha256_[0-9a-f]{64}$", "description": "Hash of any file. A step that is given no text gets the run's only file."},
				"algorithm": {"enum": ["sha256", "sha512", "sha1", "md5", "crc32"], "default": "sha256",
					"description": "md5, sha1 and crc32 are for comparing with published checksums only: they protect against nobody."}
			},
			` + exactlyOne + `: ["text", "file"],
			"additionalProperties": false
		}`),
		Output: schema(`{
			"type": "object",
			"properties": {
				"algorithm": {"type": "string", "description": "As asked for."},
				"hex": {"type": "string", "description": "The checksum in lower-case hexadecimal digits."},
				"base64": {"type": "string", "description": "The same in standard Base64."},
				"sizeBytes": {"type": "integer", "minimum": 0, "description": "How many bytes were hashed."},
				"file": {"type": "string", "format": "file", "description": "The file as Roux addresses it: sha256_ and its SHA-256. Missing for a text."},
				"name": {"type": "string", "description": "The file's name; missing for a text, empty when it has none."}
			},
			"required": ["algorithm", "hex", "base64", "sizeBytes"],
			"additionalProperties": false
		}`),
		Metadata: action.Metadata{
			InputTypes:  types("content", "Any file, or a text.", "*/*"),
			OutputTypes: types("checksum", "The checksum and what it is of.", "application/json"),
			BranchConditions: []action.BranchCondition{
				condition("is-empty", `output.sizeBytes == 0`, "There was nothing to hash."),
			},
			Parallelizable: boolTrue(),
			DurationRange:  &action.DurationRange{Min: "1ms", Max: "30s"},
		},
		Limits: []string{"Files of any size that the store takes; they are streamed."},
		Faults: []fault.Code{fault.InputInvalid, fault.FileNotFound, fault.FileInvalid},
		Examples: []action.Example{
			example("The SHA-256 of a text.", map[string]any{"text": "hello"}),
			example("The MD5 of a file, to compare with a published one.", map[string]any{"file": "file", "algorithm": "md5"}),
		},
		Run: runHash,
	}
}

func runHash(ctx context.Context, task *action.Task) (action.Result, error) {
	in := struct {
		source
		Algorithm string `json:"algorithm"`
	}{Algorithm: "sha256"}
	if err := decode(task, &in); err != nil {
		return action.Result{}, err
	}
	if err := checkOneSource("text", in.Text != nil, in.File); err != nil {
		return action.Result{}, err
	}
	newHash, ok := hashes[in.Algorithm]
	if !ok {
		return action.Result{}, fault.New(fault.InputInvalid, "there is no algorithm %.40q: want sha256, sha512, sha1, md5 or crc32", in.Algorithm)
	}
	h, out := newHash(), map[string]any{"algorithm": in.Algorithm}
	if in.Text != nil {
		_, _ = io.WriteString(h, *in.Text)
		out["sizeBytes"] = int64(len(*in.Text))
	} else {
		f, err := task.Files.Open(ctx, in.File)
		if err != nil {
			return action.Result{}, err
		}
		defer func() { _ = f.Close() }()
		info := f.Info()
		n, err := io.Copy(h, &progressReader{r: contextReader{ctx, f}, size: info.Size, reporter: report(task), text: "hashing"})
		if err != nil {
			return action.Result{}, err
		}
		out["sizeBytes"], out["file"], out["name"] = n, info.Hash, info.Name
	}
	sum := h.Sum(nil)
	out["hex"], out["base64"] = hex.EncodeToString(sum), base64.StdEncoding.EncodeToString(sum)
	return action.Result{Output: out}, nil
}

// A progressReader reports how much of a file has been read, every 64 MiB.
type progressReader struct {
	r          io.Reader
	size, done int64
	reported   int64
	reporter   action.Reporter
	text       string
}

func (h *progressReader) Read(p []byte) (int, error) {
	n, err := h.r.Read(p)
	if h.done += int64(n); h.done-h.reported >= 64<<20 {
		h.reported = h.done
		h.reporter.Progress(float64(h.done)/float64(max(h.size, h.done)), h.text)
	}
	return n, err
}
