// SPDX-License-Identifier: Apache-2.0

//go:build !small

package eastasian

import (
	"strings"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/korean"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/traditionalchinese"
)

var encodings = []struct {
	part string // of the name of a CMap
	enc  encoding.Encoding
}{
	{"GBK", simplifiedchinese.GB18030}, {"GB-EUC", simplifiedchinese.GB18030}, {"GBpc", simplifiedchinese.GB18030},
	{"B5pc", traditionalchinese.Big5}, {"ETen", traditionalchinese.Big5}, {"HKscs", traditionalchinese.Big5},
	{"RKSJ", japanese.ShiftJIS}, {"KSC", korean.EUCKR}, {"EUC-", japanese.EUCJP},
}

// Of returns the encoding of the codes of a predefined CMap, by its name; nil = it is none of
// these.
func Of(cmap string) encoding.Encoding {
	for i := range encodings {
		if strings.Contains(cmap, encodings[i].part) {
			return encodings[i].enc
		}
	}
	return nil
}
