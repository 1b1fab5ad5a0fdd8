// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"encoding/json"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/plan"
)

func (c *compiler) check(site, bool, []expr.Ref, []plan.Var)                {}
func (c *compiler) checkTree(site, json.RawMessage, []expr.Ref, []plan.Var) {}

// treeProblems are the places of what CompileTree refused.
func treeProblems(_ json.RawMessage, err error) []problem {
	return []problem{{Rule: expr.RuleSyntax, Msg: fault.Message(err)}}
}
