// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	celparser "cel.dev/cel-go/parser"
)

// The variables behind now() and uuid(). No source can contain these names. Their values
// depend on the step of the expression.
const (
	// NowVar is the time when the step became ready, as RFC 3339.
	NowVar = "@now"
	// SeedVar is a text that is unique to the step of the run.
	SeedVar = "@uuid"
)

// NameFor returns a name as a source contains it: now() for [NowVar].
func NameFor(name string) string {
	if after, own := strings.CutPrefix(name, "@"); own {
		return after + "()"
	}
	return name
}

// ownFunctions declares the functions that are not in CEL or in the versions of its
// extensions that we use. Those of base64 and json are from later versions, which would
// change existing recipes in other respects.
func ownFunctions() cel.EnvOption {
	list, text, value := cel.ListType(cel.DynType), cel.StringType, cel.DynType
	same := cel.ListType(cel.TypeParamType("T"))
	object := cel.MapType(cel.DynType, cel.DynType)
	options := []cel.EnvOption{
		cel.Macros(
			cel.GlobalMacro("now", 0, nowMacro),
			cel.GlobalMacro("uuid", 0, uuidMacro),
			cel.GlobalMacro("uuid", 1, uuidMacro),
			cel.ReceiverMacro("reduce", 4, reduceMacro),
			cel.ReceiverMacro("groupBy", 2, groupByMacro),
		),
		cel.Function("sum", member("list_sum", value, list)),
		cel.Function("avg", member("list_avg", cel.DoubleType, list)),
		cel.Function("zip", member("list_zip_list", cel.ListType(list), list, list)),
		cel.Function("merge", member("map_merge_map", object, object, object)),
		cel.Function("@groupBy", member("list_group_by_keys", cel.MapType(cel.DynType, list), list, list)),
		cel.Function("range",
			global("range_int", cel.ListType(cel.IntType), cel.IntType),
			global("range_int_int", cel.ListType(cel.IntType), cel.IntType, cel.IntType),
			global("range_int_int_int", cel.ListType(cel.IntType), cel.IntType, cel.IntType, cel.IntType)),
		cel.Function("hasAny", member("list_hasAny_list", cel.BoolType, same, same)),
		cel.Function("hasAll", member("list_hasAll_list", cel.BoolType, same, same)),
		cel.Function("hasOnly", member("list_hasOnly_list", cel.BoolType, same, same)),
		cel.Function("hasExactly", member("list_hasExactly_list", cel.BoolType, same, same)),
		cel.Function("base64.decodeUrl", global("base64_decode_url_string", cel.BytesType, text)),
		cel.Function("base64.encodeUrl", global("base64_encode_url_bytes", text, cel.BytesType)),
		cel.Function("json.encode", global("json_encode_dyn", text, value)),
		cel.Function("toJson", global("to_json_dyn", text, value)),
		cel.Function("fromJson", global("from_json_string", value, text)),
		cel.Function("json.parse", global("json_parse_string", cel.OptionalType(value), text)),
		cel.Function("date",
			global("date_string", cel.TimestampType, text),
			global("date_string_string", cel.TimestampType, text, text)),
		cel.Function("format", member("timestamp_format_string", text, cel.TimestampType, text)),
		cel.Function("addDate", member("timestamp_add_date", cel.TimestampType, cel.TimestampType, cel.IntType, cel.IntType, cel.IntType)),
		cel.Function("startOf", member("timestamp_start_of", cel.TimestampType, cel.TimestampType, text)),
		cel.Function("@uuid",
			global("uuid_seed", text, text),
			global("uuid_seed_string", text, text, text)),
	}
	return func(e *cel.Env) (*cel.Env, error) {
		for _, o := range options {
			var err error
			if e, err = o(e); err != nil {
				return nil, err
			}
		}
		return e, nil
	}
}

func global(id string, result *cel.Type, args ...*cel.Type) cel.FunctionOpt {
	return cel.Overload(id, args, result, cel.FunctionBinding(notImplemented))
}

func member(id string, result *cel.Type, args ...*cel.Type) cel.FunctionOpt {
	return cel.MemberOverload(id, args, result, cel.FunctionBinding(notImplemented))
}

// notImplemented is the binding of a declaration whose implementation decorate puts in
// place.
func notImplemented(...ref.Val) ref.Val { return noOverload() }

// nowMacro expands now() to a variable of the step; it does not read a clock.
func nowMacro(f cel.MacroExprFactory, _ ast.Expr, _ []ast.Expr) (ast.Expr, *cel.Error) {
	return f.NewCall("timestamp", f.NewIdent(NowVar)), nil
}

func uuidMacro(f cel.MacroExprFactory, _ ast.Expr, args []ast.Expr) (ast.Expr, *cel.Error) {
	return f.NewCall("@uuid", append([]ast.Expr{f.NewIdent(SeedVar)}, args...)...), nil
}

// reduceMacro expands list.reduce(acc, x, first, next).
func reduceMacro(f cel.MacroExprFactory, target ast.Expr, args []ast.Expr) (ast.Expr, *cel.Error) {
	for _, a := range args[:2] {
		if a.Kind() != ast.IdentKind || a.AsIdent() == celparser.AccumulatorName {
			return nil, f.NewError(a.ID(), "reduce: want a name here, as in list.reduce(total, x, 0, total + x)")
		}
	}
	acc, x := args[0].AsIdent(), args[1].AsIdent()
	if acc == x {
		return nil, f.NewError(args[1].ID(), "reduce: the two names must differ")
	}
	return f.NewComprehension(target, x, acc, args[2], f.NewLiteral(types.True), args[3], f.NewIdent(acc)), nil
}

// groupByMacro expands list.groupBy(x, key). It binds the list to a name, because it is
// used twice.
func groupByMacro(f cel.MacroExprFactory, target ast.Expr, args []ast.Expr) (ast.Expr, *cel.Error) {
	const name = "@__groupBy_input__"
	keys, err := celparser.MakeMap(f, f.NewIdent(name), args)
	if err != nil {
		return nil, err
	}
	call := f.NewMemberCall("@groupBy", f.NewIdent(name), keys)
	return f.NewComprehension(f.NewList(), "#unused", name, target, f.NewLiteral(types.False), f.NewIdent(name), call), nil
}

// mapInsert is the function by which two-variable macros add entries to maps.
const mapInsert = "cel.@mapInsert"

// costInsert is the cost of an insertion; transformMapEntry inserts whole maps.
func costInsert(a []ref.Val) uint64 {
	if len(a) == 2 {
		return 1 + uint64(size(a[1]))
	}
	return 1
}

func runInsert(a []ref.Val) ref.Val {
	if len(a) == 2 {
		return insertMap(a)
	}
	return insertEntry(a)
}
