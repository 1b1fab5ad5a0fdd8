// SPDX-License-Identifier: Apache-2.0

// Package form reads texts in JSON or YAML by a table of the fields that they may have.
//
// It decides whether a text has a form: known fields only, right types, limits on size and
// depth, every problem with its position. A form is derived from the types that a text is decoded
// into and from a rule for each field, and with it everything that must agree with the decoder:
// the JSON Schema for editors, the order of fields for `roux fmt`, the reference of the docs. It
// never decides what a text means, and reads no file.
package form
