// SPDX-License-Identifier: Apache-2.0

package form

import (
	"maps"
	"reflect"
)

// A Table is what the types of a form do not express.
type Table struct {
	// Rules has an entry for each field, by the name of its struct and its JSON name: "Step.id".
	Rules map[string]Rule
	// Constraints are rules over several fields of one object, by the name of its struct.
	Constraints map[string][]Constraint
	// Nouns are the names of the structs in messages and in the schema: "a step".
	Nouns map[string]string
	// Before are, by the name of a struct, fields that are written before another one although
	// the struct has them behind it.
	Before map[string][][2]string
	// Also are other structs as which an object may be written, by the name of the struct that it
	// is decoded into; see [Decoder.Instead].
	Also map[string]Also
	// Rest are, by the name of a struct, the JSON names of fields with all fields of an object that have no other
	// name: maps of any values.
	Rest map[string]string
}

// With returns a table that has the entries of t, and those of other where both have one.
func (t *Table) With(other *Table) *Table {
	sum := &Table{Rules: maps.Clone(t.Rules), Constraints: maps.Clone(t.Constraints), Nouns: maps.Clone(t.Nouns), Before: maps.Clone(t.Before), Also: other.Also, Rest: other.Rest}
	maps.Copy(sum.Rules, other.Rules)
	maps.Copy(sum.Constraints, other.Constraints)
	maps.Copy(sum.Nouns, other.Nouns)
	maps.Copy(sum.Before, other.Before)
	return sum
}

// Also is another way to write an object: as a struct of its own, when it has the field Key.
type Also struct {
	Key  string
	Type reflect.Type
}

// A Rule is what its type does not express about a field. The decoder and the published schema
// are both derived from it, so that they agree.
type Rule struct {
	Doc      string
	Def      string // the default of the field, for people; "none" = no default
	Example  any
	Required bool
	Unless   string // of a required field: the field beside it with which it is not
	Enum     []string
	Pattern  *Pattern
	Positive bool // of a duration: longer than zero
	Min, Max *float64
	MinItems int
	Shape    RawShape // of a json.RawMessage
	Null     bool     // null stands for a field that is not given
	Short    string   // of an object: a text stands for an object with only this field
	Toggle   bool     // of an object: true stands for an object without fields, false for none
	Document bool     // of an object: it is a document of its own, which may have another form
	Item     *Rule    // of each entry of a list or map
	By       string   // of a [Variant]: the field beside it whose text says what it is
	Cases    []Case   // of a [Variant]; with another text it is an object of any values
}

// A Case is what a [Variant] is when the field beside it has a value.
type Case struct {
	Value string
	Type  reflect.Type // of a struct
}

// A Variant is a value whose form depends on a field beside it. It is nil, or a pointer to a
// [Case].Type or to a map[string]json.RawMessage.
type Variant any

// A Pattern is a regular expression and its meaning in words.
type Pattern struct{ Expr, Want string }

// A RawShape says what a value may be that is kept as JSON.
type RawShape uint8

// The shapes of values that are kept as JSON.
const (
	AnyValue RawShape = iota
	JSONSchema
	Amount // of credits: a whole number, or decimal text that fits the rule's pattern
)

// Match returns the pattern of text that matches a regular expression, which is described by want.
func Match(expr, want string) *Pattern { return &Pattern{expr, want} }

// Text is the pattern of text that is not blank.
var Text = Match(`[^\s]`, "text that is not blank")

// Number returns the rule of a number between two limits.
func Number(doc, def string, low, high, example float64) Rule {
	return Rule{Doc: doc, Def: def, Example: example, Min: &low, Max: &high}
}

// A Duration is text in the syntax of Go ("1m30s") or ISO 8601 ("PT1M30S"). It is kept
// as written; [plan.ParseDuration] parses it (F47). "" = not given.
type Duration string

// A Constraint is a rule over several fields of one object: exactly one of OneOf is present; or at
// least one of AnyOf is, where Field has Value or there is no Field; or Field does not have Value
// without the field Needs.
type Constraint struct {
	OneOf     []string
	KindField string // if present, it names the field of OneOf

	AnyOf []string

	Field, Value, Needs string
}
