// SPDX-License-Identifier: Apache-2.0

package lsp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/registry"
)

// A client speaks with a server over pipes, as an editor does.
type client struct {
	t    testing.TB
	conn *conn
	id   int
	done chan error
	logs []string

	diags map[string]publishParams
}

// config is that of a server with the actions that come with Roux, in a directory.
func config(dir string) Config {
	actions := node.NewActions(nil).Of("local")
	return Config{
		Actions: actions, Dir: dir, Version: "test", Ignore: []string{"roux.yaml"},
		Options: func(file string) compile.Options {
			if !filepath.IsAbs(file) {
				file = filepath.Join(dir, file)
			}
			files := registry.NewFiles(registry.Config{Recipe: file, MaxSource: 1 << 20})
			return compile.Options{Actions: actions, MaxSource: 1 << 20, Recipes: files, Lenses: files}
		},
	}
}

func newClient(t testing.TB, cfg Config, encodings ...string) *client {
	t.Helper()
	toServer, write := io.Pipe()
	read, fromServer := io.Pipe()
	c := &client{t: t, conn: newConn(read, write), done: make(chan error, 1), diags: map[string]publishParams{}}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		err := Serve(ctx, cfg, toServer, fromServer)
		_ = toServer.CloseWithError(io.ErrClosedPipe)
		_ = fromServer.Close()
		c.done <- err
	}()
	t.Cleanup(func() {
		cancel()
		_ = write.Close()
		_ = read.Close()
		<-c.done
	})
	if err := c.call("initialize", map[string]any{"capabilities": map[string]any{"general": map[string]any{"positionEncodings": encodings}}}, nil); err != nil {
		t.Fatal(err)
	}
	return c
}

// call sends a request and waits for its answer.
func (c *client) call(method string, params, result any) error {
	c.t.Helper()
	c.id++
	id := json.RawMessage(fmt.Sprint(c.id))
	raw, err := json.Marshal(params)
	if err != nil {
		c.t.Fatal(err)
	}
	c.conn.write(&message{ID: &id, Method: method, Params: raw})
	for {
		msg := c.next()
		if msg.ID == nil || string(*msg.ID) != string(id) {
			continue
		}
		if msg.Error != nil {
			return msg.Error
		}
		if result != nil {
			if err := json.Unmarshal(msg.Result, result); err != nil {
				c.t.Fatalf("%s answered %s: %v", method, msg.Result, err)
			}
		}
		return nil
	}
}

// next reads a message, and keeps problems and log lines.
func (c *client) next() *message {
	c.t.Helper()
	msg, err := c.conn.read()
	if err != nil {
		c.t.Fatalf("the server ended: %v", errors.Join(err, <-c.done))
	}
	switch msg.Method {
	case "textDocument/publishDiagnostics":
		var p publishParams
		if err := json.Unmarshal(msg.Params, &p); err != nil {
			c.t.Fatal(err)
		}
		c.diags[p.URI] = p
	case "window/logMessage":
		c.logs = append(c.logs, string(msg.Params))
	}
	return msg
}

// problems waits for the problems of a version of a document.
func (c *client) problems(uri string, version int) []diagnostic {
	c.t.Helper()
	for {
		if p, ok := c.diags[uri]; ok && p.Version != nil && *p.Version >= version {
			if *p.Version > version {
				c.t.Fatalf("version %d was checked, not %d", *p.Version, version)
			}
			return p.Diagnostics
		}
		c.next()
	}
}

func (c *client) open(uri, text string) {
	c.t.Helper()
	c.notify("textDocument/didOpen", map[string]any{"textDocument": map[string]any{"uri": uri, "languageId": "yaml", "version": 1, "text": text}})
}

func (c *client) notify(method string, params any) { c.conn.notify(method, params) }

// marked cuts the mark ^ out of a text and returns its place.
func marked(t testing.TB, text string) (string, position) {
	t.Helper()
	before, after, ok := strings.Cut(text, "^")
	if !ok {
		t.Fatal("the text has no mark ^")
	}
	d := newDocument("", "", 0, before, false)
	return before + after, d.position(len(before))
}

func at(uri string, p position) map[string]any {
	return map[string]any{"textDocument": map[string]any{"uri": uri}, "position": p}
}

// apply applies edits to a text.
func apply(t testing.TB, text string, edits []textEdit) string {
	t.Helper()
	d := newDocument("", "", 0, text, false)
	var list []change
	for _, e := range edits {
		list = append(list, change{from: d.offset(e.Range.Start), to: d.offset(e.Range.End), is: e.NewText})
	}
	return applied(text, list)
}
