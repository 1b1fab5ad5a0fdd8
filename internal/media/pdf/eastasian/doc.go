// SPDX-License-Identifier: Apache-2.0

// Package eastasian knows the encodings of East Asian text that PDF files use beside Unicode.
//
// It decides which encoding a predefined CMap of the PDF standard has, and never decodes. A
// small binary has none of them, because their tables take half a megabyte.
package eastasian
