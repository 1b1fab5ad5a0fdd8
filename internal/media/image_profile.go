// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"hash/crc32"
	"image"
	"io"
)

// A colour profile says what the numbers of the pixels mean; without it the
// picture of a modern phone looks pale. Nothing here changes colours except the
// step from CMYK, so a profile for red, green and blue stays true and goes along
// into JPEG and PNG. It is the only metadata that does.

// maxProfile bounds a profile; those of cameras have less than 4 KiB.
const maxProfile = 512 << 10

// profileOf returns the ICC profile of a JPEG, PNG or WebP file; nil = none that
// is usable.
func profileOf(data []byte) []byte {
	var profile []byte
	w := look(bytes.NewReader(data), int64(len(data)))
	switch {
	case bytes.HasPrefix(data, []byte("\xff\xd8")):
		profile = jpegProfile(w)
	case bytes.HasPrefix(data, []byte("\x89PNG")):
		profile = pngProfile(w)
	case bytes.HasPrefix(data, []byte("RIFF")):
		if n, ok := w.number(16, 4, little); ok && w.is(12, "VP8X") {
			if off := 20 + int64(n+n&1); w.is(off, "ICCP") { // where the format wants it
				size, _ := w.number(off+4, 4, little)
				profile = w.at(off+8, int(min(size, maxProfile+1)))
			}
		}
	}
	if len(profile) < 132 || len(profile) > maxProfile || string(profile[36:40]) != "acsp" ||
		int(big.Uint32(profile)) != len(profile) {
		return nil
	}
	return profile
}

// jpegProfile puts the parts of a profile together, which come in order.
func jpegProfile(w *window) []byte {
	const mark = "ICC_PROFILE\x00"
	var profile []byte
	for off := int64(2); len(profile) <= maxProfile; {
		head := w.at(off, 4)
		if head == nil || head[0] != 0xff || head[1] == 0xda {
			break
		}
		n := int64(big.Uint16(head[2:]))
		if n < 2 {
			break
		}
		if head[1] == 0xe2 && w.is(off+4, mark) {
			const before = int64(len(mark)) + 2 // the mark, the number of the part, how many
			profile = append(profile, w.at(off+4+before, int(n-2-before))...)
		}
		off += 2 + n
	}
	return profile
}

func pngProfile(w *window) []byte {
	for off := int64(33); ; {
		head := w.at(off, 8)
		if head == nil || string(head[4:]) == "IDAT" {
			return nil
		}
		n := int64(big.Uint32(head))
		if string(head[4:]) == "iCCP" {
			packed := w.upTo(off+8, int(min(n, maxProfile)))
			_, packed, ok := bytes.Cut(packed, []byte{0})
			if !ok || len(packed) < 1 || packed[0] != 0 {
				return nil
			}
			z, err := zlib.NewReader(bytes.NewReader(packed[1:]))
			if err != nil {
				return nil
			}
			profile, err := io.ReadAll(io.LimitReader(z, maxProfile+1))
			if err != nil {
				return nil
			}
			return profile
		}
		off += 12 + n
	}
}

// profileSegment is the profile as the format holds it; nil when it does not, or
// when the profile is not about this kind of picture.
func profileSegment(format string, m image.Image, profile []byte) []byte {
	space := "RGB "
	if _, gray := m.(*image.Gray); gray {
		space = "GRAY"
	}
	if profile == nil || string(profile[16:20]) != space {
		return nil
	}
	switch format {
	case "jpeg":
		const most = 65_000
		var out []byte
		count := (len(profile) + most - 1) / most
		for i := range count {
			p := profile[i*most : min((i+1)*most, len(profile))]
			out = append(out, 0xff, 0xe2)
			out = binary.BigEndian.AppendUint16(out, uint16(len(p)+16))
			out = append(out, "ICC_PROFILE\x00"...)
			out = append(out, byte(i+1), byte(count))
			out = append(out, p...)
		}
		return out
	case "png":
		body := bytes.NewBufferString("iCCPicc\x00\x00")
		z := zlib.NewWriter(body)
		_, _ = z.Write(profile) // a buffer takes all
		_ = z.Close()
		out := binary.BigEndian.AppendUint32(nil, uint32(body.Len()-4))
		out = append(out, body.Bytes()...)
		return binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(body.Bytes()))
	}
	return nil
}
