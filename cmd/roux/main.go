// SPDX-License-Identifier: Apache-2.0

// Command roux runs recipes; package internal/cli is what it does.
package main

import (
	"context"
	"os"

	"github.com/roux-engine/roux/internal/cli"
	"github.com/roux-engine/roux/internal/media"
)

func main() {
	// A file is parsed in a child of its own, which is this program again.
	media.Dispatch()
	os.Exit(cli.Main(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
