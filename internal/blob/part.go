// SPDX-License-Identifier: Apache-2.0

package blob

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"os"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
)

const (
	// pieceBytes is how much of a file one checksum covers.
	pieceBytes = 4 << 20
	// maxPieces bounds the checksums in a sidecar: they cover 16 GiB.
	maxPieces = DefaultMaxBytes / pieceBytes
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// pieceSums collects the CRC-32C of each piece while a file is written.
type pieceSums struct {
	done []byte
	crc  uint32
	n    int // bytes in crc
}

func (s *pieceSums) write(p []byte) {
	for len(p) > 0 {
		part := p[:min(len(p), pieceBytes-s.n)]
		s.crc = crc32.Update(s.crc, castagnoli, part)
		s.n += len(part)
		p = p[len(part):]
		if s.n == pieceBytes {
			s.done = binary.LittleEndian.AppendUint32(s.done, s.crc)
			s.crc, s.n = 0, 0
		}
	}
}

// sums returns nil for a file of one piece, which is read whole anyway, and for one of
// more than maxPieces.
func (s *pieceSums) sums() []byte {
	if len(s.done) == 0 || len(s.done) > 4*maxPieces {
		return nil
	}
	if s.n > 0 {
		return binary.LittleEndian.AppendUint32(s.done, s.crc)
	}
	return s.done
}

// Part returns at most n bytes beginning at `from`, without reading the rest of the
// file (n < 0: up to the end).
//
// It verifies the file's size and, for every piece of 4 MiB that the part touches, the
// CRC-32C recorded at upload. That finds damage by a bad disk. Unlike the SHA-256 of a
// whole read, it does not prove that the bytes are those of the hash. Files stored
// without checksums (by an earlier release, or beyond maxPieces where Config.MaxBytes
// allows it) are hashed whole first. Damage is fault.FileInvalid before the first byte
// of the damaged piece.
func (s *Store) Part(ctx context.Context, account, hash string, from, n int64) (io.ReadCloser, action.FileInfo, error) {
	f, info, err := s.open(ctx, account, hash)
	if err != nil {
		return nil, info, err
	}
	if from < 0 || from > info.Size || from == info.Size && info.Size > 0 {
		_ = f.Close()
		return nil, info, fault.New(fault.InputInvalid, "the file has %d bytes: byte %d is not in it", info.Size, from)
	}
	end := info.Size
	if n >= 0 && n < end-from {
		end = from + n
	}
	sums := s.sumsOf(placeOf(account, hash), info.Size)
	if sums == nil {
		if err := verify(ctx, f, info.Size, hash); err != nil {
			_ = f.Close()
			return nil, info, err
		}
	}
	return &part{f: f, info: info, sums: sums, at: from, end: end}, info, nil
}

// sumsOf returns the recorded checksums, or nil unless there is one for every piece.
func (s *Store) sumsOf(p place, size int64) []byte {
	rec, err := s.readSidecar(p)
	if err != nil || int64(len(rec.Sums)) != 4*((size+pieceBytes-1)/pieceBytes) || len(rec.Sums) == 0 {
		return nil
	}
	return rec.Sums
}

// A part reads one piece at a time and returns no byte before its piece is verified.
type part struct {
	f       *os.File
	info    action.FileInfo
	sums    []byte // nil: the file was verified whole
	at, end int64
	ready   []byte // verified bytes from at on
	buf     []byte
	err     error
}

func (p *part) Close() error { return p.f.Close() }

func (p *part) Read(b []byte) (int, error) {
	if p.err == nil && p.at >= p.end {
		return 0, io.EOF
	}
	if p.err == nil && len(p.ready) == 0 {
		p.err = p.fill()
	}
	if p.err != nil {
		return 0, p.err
	}
	n := copy(b, p.ready)
	p.ready = p.ready[n:]
	p.at += int64(n)
	return n, nil
}

// fill reads the piece that holds the next byte.
func (p *part) fill() error {
	i := p.at / pieceBytes
	start := i * pieceBytes
	size := min(pieceBytes, p.info.Size-start)
	if p.buf == nil {
		p.buf = make([]byte, size)
	}
	piece := p.buf[:size]
	if _, err := p.f.ReadAt(piece, start); err != nil && !errors.Is(err, io.EOF) {
		return storageFault(err, "read file %s", p.info.Hash)
	} else if err != nil && size > 0 {
		return damaged(p.info.Hash) // the file became shorter while it was read
	}
	if p.sums != nil && crc32.Checksum(piece, castagnoli) != binary.LittleEndian.Uint32(p.sums[4*i:]) {
		return damaged(p.info.Hash)
	}
	p.ready = piece[p.at-start : min(size, p.end-start)]
	return nil
}
