// SPDX-License-Identifier: Apache-2.0

// Command roux runs recipes; package internal/cli implements it.
package main

import (
	"context"
	"os"

	"github.com/roux-engine/roux/internal/cli"
	"github.com/roux-engine/roux/internal/confine"
	"github.com/roux-engine/roux/internal/media"
)

func main() {
	// Untrusted files are parsed, and commands are confined, in child processes, which are this
	// program again.
	media.Dispatch()
	confine.Dispatch()
	os.Exit(cli.Main(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr, exporter()))
}
