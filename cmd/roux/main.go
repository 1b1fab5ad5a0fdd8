// SPDX-License-Identifier: Apache-2.0

// Command roux runs recipes; package internal/cli implements it.
package main

import (
	"context"
	"os"

	"github.com/roux-engine/roux/internal/cli"
	"github.com/roux-engine/roux/internal/media"
)

func main() {
	// Untrusted files are parsed in a child process, which is this program again.
	media.Dispatch()
	os.Exit(cli.Main(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr, exporter()))
}
