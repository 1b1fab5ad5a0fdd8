// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/config"
	"github.com/roux-engine/roux/internal/remote"
	"github.com/roux-engine/roux/internal/term"
	"github.com/roux-engine/roux/internal/view"
)

// How a command treats a server that is named.
const (
	worksOver = "over" // it uses the server
	noMatter  = "none" // it uses neither a server nor a data directory
	onlyHere  = "here" // it uses the data directory and refuses a server
)

// overServer says of each command, and of those below it that are not named, how it treats a
// server.
var overServer = map[string]string{
	"run": worksOver, "estimate": worksOver, "trace": worksOver, "graph": worksOver, "explain": worksOver, "events": worksOver, "logs": worksOver, "feed": worksOver,
	"diff": worksOver, "replay": worksOver, "export": worksOver, "accounts": worksOver,
	"runs list": worksOver, "runs get": worksOver, "runs cancel": worksOver, "runs retry": worksOver, "runs signal": worksOver, "runs pause": worksOver,
	"runs unpause": worksOver, "runs delete": worksOver, "runs release": worksOver, "runs": noMatter, "runs adopt": onlyHere,
	"credits": noMatter, "credits balance": worksOver, "credits grant": worksOver, "credits void": worksOver, "credits ledger": worksOver, "credits explain": worksOver,
	"credits adjust": worksOver, "credits reconcile": onlyHere,
	"files": noMatter, "files put": worksOver, "files get": worksOver, "files ls": worksOver, "files inspect": worksOver, "files rm": worksOver, "files gc": worksOver,
	"keys": noMatter, "keys create": worksOver, "keys list": worksOver, "keys get": worksOver, "keys rotate": worksOver, "keys revoke": worksOver,
	"webhooks": worksOver, "schedules": worksOver, "triggers": worksOver, "approvals": worksOver, "jobs": worksOver, "cache": worksOver, "listen": worksOver, "top": worksOver, "apply": worksOver, "recipes": worksOver, "lenses": worksOver,
	"secrets": noMatter, "secrets set": worksOver, "secrets list": worksOver, "secrets delete": worksOver, "secrets rotate": onlyHere,
	"resume": onlyHere, "serve": onlyHere, "dev": onlyHere, "backup": onlyHere, "restore": onlyHere, "doctor": onlyHere, "demo": onlyHere, "sim": onlyHere,
	"": noMatter, "init": noMatter, "validate": noMatter, "lint": worksOver, "refactor": noMatter, "fmt": noMatter, "lock": noMatter, "convert": noMatter, "import": noMatter /* a bundle: onlyHere */, "schema": noMatter, "lsp": noMatter, "test": noMatter, "rehearse": worksOver, "actions": noMatter, "config": noMatter, "version": noMatter,
	"emulate": noMatter, "providers": noMatter, "trigger-webhook": worksOver, "worker": worksOver, "worker conform": noMatter, "help": noMatter, "completion": noMatter, "__complete": worksOver, "__completeNoDesc": worksOver, "profiles": noMatter,
}

// serverUse returns how a command treats a server; "" = nobody has said.
func serverUse(cmd *cobra.Command) string {
	for c := cmd; c != nil; c = c.Parent() {
		_, path, _ := strings.Cut(c.CommandPath(), " ")
		if use := overServer[path]; use != "" && (c.HasParent() || c == cmd) { // the root's is its own
			return use
		}
	}
	return ""
}

// aim finds out which server a command is to use, and refuses one that it cannot use: it would
// work on the data directory without a word.
func (a *app) aim(cmd *cobra.Command) error { return a.aimAs(cmd, serverUse(cmd)) }

// aimAs is aim for a command that treats a server as use says, where that depends on its arguments.
func (a *app) aimAs(cmd *cobra.Command, use string) error {
	if use == noMatter {
		return nil
	}
	t, err := a.config.Target(givenFlags(cmd))
	if err != nil || t.URL.Value == "" {
		return err
	}
	a.target = t
	for name, flag := range map[string]*string{"profile": &a.profileFlag, "key-file": &a.keyFile} {
		*flag, _ = givenFlags(cmd)(name)
	}
	a.accountGiven = a.config.Lookup(config.Find("account"), givenFlags(cmd))[0].Origin != "default"
	if use == worksOver {
		return nil
	}
	e := fault.New(fault.Usage, "`%s` works on a data directory, and %s names the server %s: not over a server yet; `--profile none` or `--data DIR` names a data directory here", cmd.CommandPath(), a.aimedBy(), view.OneLine(t.URL.Value))
	e.Remedy = "Do it on the machine of the server, in its data directory."
	return e
}

// aimedBy says what names the server.
func (a *app) aimedBy() string {
	switch u := a.target.URL; u.Origin {
	case "profile":
		return "the profile " + u.Where
	default:
		return u.Where
	}
}

// remote returns a client of the server that the user names, or nil when there is none and the
// data directory counts.
func (a *app) remote(ctx context.Context) (*client.Client, error) {
	s, err := a.reach(ctx)
	if s == nil {
		return nil, err
	}
	return s.Client, nil
}

// reach returns the server that the user names, as a data directory; nil = there is none.
func (a *app) reach(ctx context.Context) (*remote.Server, error) {
	if a.target == nil || a.server != nil {
		return a.server, nil
	}
	t := a.target
	cfg := client.Config{URL: t.URL.Value, Key: t.Key, UserAgent: "roux/" + thisBuild().Version}
	if a.accountGiven {
		cfg.Header = http.Header{"Roux-Account": {a.account}} // only a server that checks no keys heeds it
	}
	c, err := client.New(cfg)
	if err != nil {
		return nil, err
	}
	me, err := c.Me(ctx)
	if err != nil {
		return nil, err
	}
	a.log.Debug("server", "url", t.URL.Value, "account", me.Account, "key", me.Name)
	if t.Key != "" && inTheOpen(t.URL.Value) {
		a.say("warning: the key goes to %s without encryption: everybody on the way can read it", view.OneLine(t.URL.Value))
	}
	if a.accountGiven && a.account != me.Account {
		if !a.others {
			e := fault.New(fault.Usage, "the key is one of account %s, and --account names %s", me.Account, a.account)
			e.Remedy = fmt.Sprintf("Use a key of that account; `roux keys create NAME --role ROLE --account %s` makes one, with a key that administers the server.", a.account)
			return nil, e
		}
	} else {
		a.account = me.Account
	}
	a.server = remote.New(c, me.Account, a.account)
	return a.server, nil
}

// inTheOpen reports whether what is sent to a URL leaves the machine without encryption.
func inTheOpen(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" || u.Hostname() == "localhost" {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return ip == nil || !ip.IsLoopback()
}

// ofServer adds to an error of the server what to do about it from the command line.
func (a *app) ofServer(err error) error {
	var e *fault.Error
	if a.target == nil || !errors.As(err, &e) {
		return err
	}
	t, out := a.target, *e
	at := view.OneLine(t.URL.Value)
	var p *client.Problem
	answered := errors.As(err, &p)
	switch {
	case e.Code == fault.ServerUnreachable && !answered:
		out.Msg = fmt.Sprintf("%s: %s", at, e.Msg)
		out.Remedy = fmt.Sprintf("Check that `roux serve` runs there, and the address, which comes from %s; `--profile none` works on the data directory here.", a.aimedBy())
	case answered && p.RequestID == "" && e.Code == p.Code:
		out.Msg = fmt.Sprintf("%s: %s", at, e.Msg)
		out.Remedy = fmt.Sprintf("Check the address, which comes from %s: it is what `roux serve` prints, without a path.", a.aimedBy())
	case e.Code == fault.Unauthorized && answered && t.Key == "":
		out.Msg = fmt.Sprintf("%s wants a key, and none is given", at)
		out.Remedy = "Put it into ROUX_KEY, or into a file that --key-file names; `roux profiles set NAME --server URL` keeps it."
	case e.Code == fault.Unauthorized && answered:
		out.Msg = fmt.Sprintf("%s does not take the key from %s: %s", at, a.keyFrom(), e.Msg)
		out.Remedy = "It may have expired or been revoked, or be that of another server: somebody with the role owner makes another one with `roux keys create`."
	case e.Code == fault.Forbidden && answered:
		out.Remedy = fmt.Sprintf("Use a key that may do it (this one comes from %s); somebody with the role owner makes one with `roux keys create`.", a.keyFrom())
	case e.Code == fault.NotFound && answered:
		out.Msg = fmt.Sprintf("%s does not have what the command asks for: its address has a path too many, or it is of an earlier release than this command, %s", at, thisBuild().Version)
		out.Remedy = fmt.Sprintf("Check the address, which comes from %s; /openapi.json of the server names its release.", a.aimedBy())
	default:
		return err
	}
	return &out
}

// keyFrom says where the key comes from.
func (a *app) keyFrom() string {
	switch from := a.target.KeyFrom; from.Origin {
	case "":
		return "nowhere"
	case "profile":
		return "the profile " + from.Where
	default:
		return from.Where
	}
}

// aimHint returns the flags that name the server in a command line for the user, as far as the
// environment does not name it.
func (a *app) aimHint() (words string) {
	switch u := a.target.URL; {
	case u.Origin == "flag":
		words = " --server " + term.ShellQuote(u.Value)
	case u.Origin == "profile" && a.profileFlag != "":
		words = " --profile " + a.target.Profile
	}
	if from := a.target.KeyFrom; from.Where == "--key-file" {
		words += " --key-file " + term.ShellQuote(a.keyFile)
	}
	return words
}

// viewTarget completes the views of the settings that name the server: by a profile, and
// without showing a key.
func (a *app) viewTarget(v *settingView, cmd *cobra.Command) {
	if v.Key == "key" {
		for i := range v.Overridden {
			if v.Overridden[i].Origin != "default" {
				v.Overridden[i].Value = config.Masked
			}
		}
		if v.Origin != "default" {
			v.Value = config.Masked
		}
	}
	t, err := a.config.Target(givenFlags(cmd))
	if err != nil || t.Profile == "" && (t.Key == "" || t.KeyFrom.Origin != "profile") {
		return
	}
	of := config.Value{Origin: "profile", Where: t.KeyFrom.Where}
	switch {
	case v.Key == "server" && t.Profile != "":
		of.Value = t.URL.Value
	case v.Key == "profile" && t.Profile != "" && v.Origin == "default":
		of.Value, of.Origin, of.Where = t.Profile, "profiles use", "profiles.json"
	case v.Key == "key" && t.Key != "" && t.KeyFrom.Origin == "profile":
		of.Value = config.Masked
	default:
		return
	}
	if v.Origin != "default" {
		v.Overridden = append([]config.Value{{Value: v.Value, Origin: v.Origin, Where: v.Where}}, v.Overridden...)
	}
	v.Value, v.Origin, v.Where = of.Value, of.Origin, of.Where
}
