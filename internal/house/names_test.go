// SPDX-License-Identifier: Apache-2.0

package house_test

import (
	"fmt"
	"go/ast"
	"testing"
)

// refusedNames are former names of types, functions, methods and fields of a package,
// with the field's term for the same thing. They are refused only in that package,
// because in another package the same word may be right.
var refusedNames = map[string]map[string]string{
	"internal/blob": {"strange": "notOurs", "onward": "monotonic", "holds": "alreadyStored"},
	"internal/builtin": {
		"fold": "aggregate", "folds": "aggregates", "tally": "accumulator", "held": "boundedBuffer", "heard": "progressReader",
		"watched": "contextReader", "aside": "inGoroutine", "guard": "escapeFormula", "picker": "pathReader", "maxHeld": "maxTextInMemory",
		"maxMade": "maxResultInMemory",
	},
	"internal/bundle": {"frugal": "byteLimit", "sealer": "trailerWriter"},
	"internal/cli": {
		"shelf": "remote.Files", "helm": "client.Runs", "doorkeeper": "local.peerCheck", "runView": "view.Run", "given": "inputFile",
		"placed": "userfile.Result", "placer": "userfile.Dir", "draft": "userfile.Atomic", "steering": "change", "steer": "change",
		"lookOf": "term.Glyph", "fold": "term.Wrap", "chosen": "selected", "tailed": "followedEvents", "dataDir": "config.DataDir",
	},
	"internal/compile": {
		"secondLook": "checkMalformed", "layOut": "flatten", "race": "checkAmbiguity", "retain": "markLive", "likelyMistakes": "lint",
		"mender": "repairer", "readerOf": "slotReader", "circle": "reportCycle", "lift": "ancestorIn", "surelyBinds": "definitelyBinds",
		"splitBinders": "checkBranches", "wish": "celType", "sleeps": "isWaitAction", "spot": "location",
	},
	"internal/compile/expressions": {"softened": "TestsPresence"},
	"internal/compile/form": {
		"elsewhere": "synonymOf", "bond": "constraint", "counted": "numberRule", "readAround": "parseWithoutStep", "readAbove": "parsePrefix",
		"nouns": "objectNouns",
	},
	"internal/compile/sample": {"drawing": "generator", "hurried": "shortTimeout"},
	"internal/datadir":        {"seclude": "closeToOthers"},
	"internal/doctor":         {"judged": "imageReport", "judgeImage": "readImage"},
	"internal/engine": {
		"resume": "reload", "resumeRun": "recoverRun", "seat": "handover", "baton": "handover", "lend": "runInline", "standBy": "standby",
		"dog": "watchdog", "here": "handover", "inlineCommit": "handover", "flight": "inFlight",
		"stray": "orphan", "strays": "orphans", "linger": "overdue", "apart": "quarantined", "setApart": "quarantine",
		"landed": "committedBatch", "carryOn": "releaseCommitted", "seal": "encodeBatch",
		"sealAhead": "encodeAhead", "Seal": "EncodeBatch", "sealed": "encoded", "ParkAfter": "SuspendAfter", "parkIdle": "suspendIdle",
		"parkResting": "suspendQuiet", "parked": "suspended", "FoldBytes": "CompactBytes", "FoldEvents": "CompactEvents",
		"FoldCheck": "CompactCheck", "foldLaggards": "compactOldest", "foldAll": "compactAll", "unfolded": "uncompacted", "folding": "compacting",
		"ask": "request", "letOut": "releaseEffects", "handOut": "startJobs", "carryOut": "perform", "CarryOut": "Perform", "takeUp": "adoptAttempt",
		"bereaved": "lostAttempts", "lone": "isolatedRun", "desperate": "suspectAllAfter", "hopeless": "permanent", "passing": "transient",
		"entering": "recovering", "flying": "committing", "gone": "dropped", "resting": "quiet", "rested": "quietRun", "MaxResting": "MaxQuiet",
		"slim": "shrink", "owed": "pendingCommand", "land": "finish", "lookAtCrashes": "checkHistory",
	},
	"internal/expr": {
		"guard": "decorate", "guarded": "implementation", "prices": "callCosts", "price": "cost", "blame": "explainLarge", "reached": "contentError",
		"noted": "recordContentError", "twice": "duplicateKeyMessage", "whole": "refuseLarge", "cheaper": "costHint", "lone": "single",
		"pipe": "pipeline", "piece": "fragment", "wanted": "checkResultType", "zoned": "timePart",
	},
	"internal/journal": {
		"See": "Check", "wholly": "checkResets", "loses": "checkLost", "begins": "checkBegin", "timely": "checkTiming", "became": "statusAfter",
		"quickStart": "readPlainStart",
	},
	"internal/jsonx":  {"asItIs": "unescapedPrefix", "meter": "tokenReader"},
	"internal/layout": {"relaxed": "compactPlacement", "settle": "placeRank", "slanted": "countCurved", "piece": "segment", "meet": "attachX"},
	"internal/local":  {"doorkeeper": "peerCheck"},
	"internal/machine": {
		"agenda": "worklist", "Witness": "journal.Checker", "run0": "header", "kids": "children", "kidStatus": "childStatus",
		"sweepKids": "sweepChildren", "ask": "issueOwedCommand", "question": "owedCommand", "take": "handle", "fold": "apply", "mustFold": "mustApply",
		"undoing": "compensating", "culprit": "failedStep", "holds": "checkMemory", "opens": "checkOpen", "touchStep": "refreshStep",
		"generation": "resetSet", "admit": "openHeld", "moment": "parseWaitEnd", "lacks": "missing",
	},
	"internal/media": {
		"Sound": "AudioVideo", "window": "boundedReader", "spent": "readBudget", "wired": "canStartItself", "askHere": "runInProcess",
		"askChild": "runInChild", "silence": "idleTimeout", "noMemory": "outOfMemoryTexts", "errGone": "errAbandoned", "straight": "unpremultiply",
		"turn": "orient", "part": "cropRect", "bands": "inParallel", "tame": "sanitize",
	},
	"internal/media/pdf": {
		"typesetter": "composer", "laid": "pageLayout", "sheet": "pageContent", "glance": "lazyFile", "place": "xrefEntry", "placed": "objectLocation",
		"openSound": "openOrRebuild", "unlocked": "withoutEncryption", "packed": "compressedObject", "alphabet": "simpleEncoding",
		"emphasis": "fontStyle", "look": "style", "piece": "fragment", "bar": "axisRule", "strip": "columnExtent", "para": "openParagraph",
		"writer": "runBuilder",
	},
	"internal/picture": {
		"Look": "Style", "LookOf": "StyleOf", "Of": "FromPlan", "sheet": "stylesheet", "signs": "icons", "em": "runeWidth", "took": "formatDuration",
		"spoken": "statusText",
	},
	"internal/simulate": {
		"weather": "faultProfile", "Parked": "Suspended", "judge": "checker", "cabinet": "blobs", "trial": "runRecord", "ask": "request",
		"say": "tracef", "heir": "survivor", "bother": "userAction", "pry": "probeForeign", "haunt": "lateReport", "bury": "endFailed",
		"landed": "noBatch",
	},
	"internal/store": {
		"Slim": "ShrinkMap", "Naming": "References", "Keeper": "Retention", "Fold": "Compaction", "FoldBytes": "CompactBytes",
		"FoldEvents": "CompactEvents", "Park": "Suspension",
	},
	"internal/store/memory": {"park": "suspension"},
	"internal/store/sqlite": {
		"takeOff": "publishBegin", "land": "publishEnd", "spot": "location", "seal": "format.EncodeBlob", "unseal": "format.DecodeBlob",
		"folded": "compacted", "folds": "compacted", "keepFold": "writeCompaction", "dropFolded": "dropCompacted", "removeFolds": "removeCompacted",
		"park": "suspend", "parked": "suspended", "newParked": "newSuspended", "spendReserve": "directory.SpendReserve", "keepReserve": "directory.KeepReserve",
		"bury": "markDead", "weed": "dropStale", "lapse": "forgetRecent", "recall": "recentRecord", "took": "setHead", "flying": "committing",
	},
	"internal/slots":           {"gate": "Limit", "lane": "accountQueue"},
	"internal/retention":       {"namer": "References", "sweepLoop": "Cleaner.Run", "Swept": "Removed"},
	"internal/loops":           {"genuine": "checkReferences"},
	"internal/store/storetest": {"fold": "compaction", "folds": "compactions", "parking": "suspensions"},
	"internal/view":            {"Said": "LogLine", "SaidBy": "StepLog", "withdraw": "resetInner"},
	"internal/worker":          {"Crew": "Executor", "stint": "yieldInterval", "saying": "reportLimiter"},
	"internal/yamlx":           {"spot": "position", "disputed": "ambiguous", "foreign": "unsupported", "opened": "blockOf"},
	"sim/kill": {
		"story": "trigger", "scene": "scenario", "stage": "scenarioRun", "whole": "finishIntact", "under": "runInjected", "hear": "readLine",
		"steer": "sendSignals", "age": "makeExpired",
	},
}

// TestRefusedNames: the field's terms are not replaced by former names of our
// own.
func TestRefusedNames(t *testing.T) {
	files := load(t)
	for _, problem := range nameProblems(files) {
		t.Error(problem)
	}
	packages := map[string]bool{}
	for _, f := range files {
		packages[f.pkg] = packages[f.pkg] || !f.test
	}
	for pkg := range refusedNames {
		if !packages[pkg] {
			t.Errorf("refusedNames has package %s, which does not exist", pkg)
		}
	}
}

func nameProblems(files []*source) (problems []string) {
	for _, f := range files {
		refused := refusedNames[f.pkg]
		if refused == nil || f.test {
			continue
		}
		look := func(id *ast.Ident) {
			if better := refused[id.Name]; better != "" {
				problems = append(problems, fmt.Sprintf("%s: %s: the field says %s", f.fset.Position(id.Pos()), id.Name, better))
			}
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				look(n.Name)
			case *ast.ValueSpec:
				for _, id := range n.Names {
					look(id)
				}
			case *ast.FuncDecl:
				look(n.Name)
			case *ast.Field:
				for _, id := range n.Names {
					look(id)
				}
			}
			return true
		})
	}
	return problems
}
