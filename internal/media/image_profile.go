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

// A colour profile defines what the pixel values mean; without it a photo of a
// modern phone looks pale. Nothing here changes colours except the conversion
// from CMYK, so an RGB profile stays valid and is copied into JPEG and PNG. It
// is the only metadata that is copied.

// maxProfile limits the size of a profile; those of cameras have less than 4
// KiB.
const maxProfile = 512 << 10

// profileOf returns the ICC profile of a JPEG, PNG or WebP file, or nil when it
// has none that is usable.
func profileOf(data []byte) []byte {
	var profile []byte
	r := newBoundedReader(bytes.NewReader(data), int64(len(data)))
	switch {
	case bytes.HasPrefix(data, []byte("\xff\xd8")):
		profile = jpegProfile(r)
	case bytes.HasPrefix(data, []byte("\x89PNG")):
		profile = pngProfile(r)
	case bytes.HasPrefix(data, []byte("RIFF")):
		if n, ok := r.uintAt(16, 4, little); ok && r.matchesAt(12, "VP8X") {
			if off := 20 + int64(n+n&1); r.matchesAt(off, "ICCP") { // the place that the format prescribes
				size, _ := r.uintAt(off+4, 4, little)
				profile = r.bytesAt(off+8, int(min(size, maxProfile+1)))
			}
		}
	}
	if len(profile) < 132 || len(profile) > maxProfile || string(profile[36:40]) != "acsp" ||
		int(big.Uint32(profile)) != len(profile) {
		return nil
	}
	return profile
}

// jpegProfile joins the parts of a profile, which are stored in order.
func jpegProfile(r *boundedReader) []byte {
	const mark = "ICC_PROFILE\x00"
	var profile []byte
	for off := int64(2); len(profile) <= maxProfile; {
		head := r.bytesAt(off, 4)
		if head == nil || head[0] != 0xff || head[1] == 0xda {
			break
		}
		n := int64(big.Uint16(head[2:]))
		if n < 2 {
			break
		}
		if head[1] == 0xe2 && r.matchesAt(off+4, mark) {
			const before = int64(len(mark)) + 2 // the mark, the part's number, the number of parts
			profile = append(profile, r.bytesAt(off+4+before, int(n-2-before))...)
		}
		off += 2 + n
	}
	return profile
}

func pngProfile(r *boundedReader) []byte {
	for off := int64(33); ; {
		head := r.bytesAt(off, 8)
		if head == nil || string(head[4:]) == "IDAT" {
			return nil
		}
		n := int64(big.Uint32(head))
		if string(head[4:]) == "iCCP" {
			packed := r.upToAt(off+8, int(min(n, maxProfile)))
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

// profileSegment returns the profile as a segment of the format. It returns nil
// when the format has none, or when the profile is not for images of this type.
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
		_, _ = z.Write(profile) // a bytes.Buffer never fails
		_ = z.Close()
		out := binary.BigEndian.AppendUint32(nil, uint32(body.Len()-4))
		out = append(out, body.Bytes()...)
		return binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(body.Bytes()))
	}
	return nil
}
