// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
)

// memoryFiles keeps the files of a world in memory. They are durable when Put returns,
// as in a real engine.
type memoryFiles struct {
	w     *World
	files map[string]*File
}

// Open implements action.Files.
func (c *memoryFiles) Open(_ context.Context, hash string) (action.File, error) {
	f := c.files[hash]
	if f == nil {
		return nil, fault.New(fault.FileNotFound, "no file %s", hash)
	}
	if c.w.happens(FileFailed) {
		return nil, fault.New(fault.ServiceUnavailable, "file %s cannot be read now", hash)
	}
	return &openFile{bytes.NewReader(f.Data), f}, nil
}

// Put implements action.Files.
func (c *memoryFiles) Put(_ context.Context, r io.Reader, name, mimeType string) (action.FileInfo, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return action.FileInfo{}, err
	}
	sum := sha256.Sum256(data)
	f := &File{Hash: "sha256_" + hex.EncodeToString(sum[:]), Name: name, MimeType: mimeType, Data: data}
	c.files[f.Hash] = f
	return f.info(), nil
}

func (f *File) info() action.FileInfo {
	return action.FileInfo{Hash: f.Hash, Name: f.Name, MimeType: f.MimeType, Size: int64(len(f.Data))}
}

type openFile struct {
	*bytes.Reader
	f *File
}

// Close implements action.File.
func (*openFile) Close() error { return nil }

// Info implements action.File.
func (o *openFile) Info() action.FileInfo { return o.f.info() }
