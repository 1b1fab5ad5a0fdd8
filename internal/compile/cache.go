// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"encoding/json"
	"fmt"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile/expressions"
	"github.com/roux-engine/roux/internal/compile/texts"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/plan"
)

// How old a cached result may be.
const (
	defaultCacheMS = 24 * hourMS
	maxCacheMS     = 30 * 24 * hourMS
)

// cache compiles how a step uses earlier results of its action. A step may not if its result
// depends on what is not in a key, or if its effect is undone later.
func (c *compiler) cache(i int32) {
	n, st := &c.nodes[i], &c.p.Steps[i]
	k, at := n.src.Cache, n.ptr+"/cache"
	if k == nil {
		return
	}
	refuse := func(rule, msg, hint string, related ...fault.Place) {
		c.fail(fault.RecipeInvalid, rule, c.keyAt(at), msg, hint, related...)
	}
	switch {
	case st.Kind != plan.Action || c.isApproval(i): // an answer that people gave before answers for nobody
		refuse("not-for-kind", c.kindName(i)+" cannot have a cache; only action steps can", "")
		return
	case st.Compensate != plan.None:
		refuse("cache-compensate", "a step that is compensated cannot have a cache: its compensation would undo the effect of another run",
			"remove one of them", c.place(c.keyAt(n.ptr+"/compensate"), "the compensation"))
	case usesSecret(st.Params):
		refuse("cache-secret", "a step with a secret in its input cannot have a cache: what the secret gives access to may change, and its value is in no key",
			"remove the cache, or do what needs the secret in a step of its own")
	}
	if d := n.decl; d != nil && d.Delivery == action.AtMostOnce {
		c.warn("cache-effect", c.keyAt(at), fmt.Sprintf("the action %q is attempted at most once, so it probably has an effect, which a cached result does not have again", d.Name), "remove the cache if the effect is wanted each time")
	}
	out := &plan.Cache{TTLMS: c.duration(k.TTL, c.valueAt(at+"/ttl"))}
	if out.TTLMS == 0 {
		out.TTLMS = defaultCacheMS
	}
	if out.TTLMS > maxCacheMS {
		c.fail(fault.RecipeInvalid, "cache-too-long", c.valueAt(at+"/ttl"), fmt.Sprintf("%q is longer than a result is kept", string(k.TTL)), `want at most "720h", which is 30 days`)
	}
	out.Price = c.cachePrice(k.Price, i, at+"/price")
	st.Cache = out
}

// cachePrice returns what a cached result costs. The action's own price is the most that an
// attempt costs.
func (c *compiler) cachePrice(raw json.RawMessage, i int32, ptr string) int64 {
	if len(raw) == 0 {
		return 0
	}
	text := string(raw)
	if raw[0] == '"' {
		if json.Unmarshal(raw, &text) != nil {
			text = ""
		}
	}
	price, err := ledger.ParseAmount(text)
	if err != nil {
		c.fail(fault.RecipeInvalid, "bad-amount", c.valueAt(ptr), fault.Message(err), "")
		return 0
	}
	if d := c.nodes[i].decl; d != nil {
		most, err := catalogue.Price(d.Action)
		if err == nil && most == 0 {
			most = ledger.Whole(d.Cost)
		}
		if err == nil && price > most {
			c.warn("cache-price", c.valueAt(ptr), fmt.Sprintf("a cached result costs %s, but a call of the action %q costs %s, and no more is charged", text, d.Name, most), "")
		}
	}
	return int64(price)
}

// resolveCache compiles the expression for the key.
func (c *compiler) resolveCache(i int32, here func(ptr, want string) site) {
	n, st := &c.nodes[i], &c.p.Steps[i]
	if st.Cache == nil {
		return
	}
	if n.src.Cache.Key != "" {
		st.Cache.Key = c.cel(here("/cache/key", ""), n.src.Cache.Key)
	}
	for _, v := range cacheReads(st) {
		if v.Kind == plan.VarNow || v.Kind == plan.VarSeed {
			c.warn("cache-never", c.keyAt(n.ptr+"/cache"), "no cached result is ever used: the input or the key has "+expr.NameFor(v.Name)+", which is another value in each run", "")
			return
		}
	}
}

// cacheReads returns the variables on which the key of a cached result depends.
func cacheReads(st *plan.Step) []plan.Var {
	vars := st.InputVars()
	if st.Cache.Key != nil {
		vars = append(vars, st.Cache.Key.Vars...)
	}
	return vars
}

// usesSecret reports whether a text in parameters has a reference to a secret.
func usesSecret(params json.RawMessage) (found bool) {
	texts.In(params, "", func(_, text string) {
		uses, rest := expr.Secrets(text)
		found = found || len(uses) > 0 || expressions.CallOf("secret", rest, true) >= 0
	})
	return found
}
