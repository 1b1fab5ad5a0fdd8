// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/roux-engine/roux"
	"github.com/roux-engine/roux/api"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ln, err := net.Listen("tcp", "127.0.0.1:7420")
	if err != nil {
		log.Fatal(err)
	}
	if err := serve(ctx, "data", ln, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// serve carries on the runs of a data directory and serves /v1 until ctx ends.
func serve(ctx context.Context, dir string, ln net.Listener, out io.Writer) error {
	e, err := roux.Open(ctx, roux.Options{Dir: dir})
	if err != nil {
		return err
	}
	defer e.Close()
	handler, err := api.New(ctx, e, api.Options{})
	if err != nil {
		return err
	}
	if key := handler.FirstKey(); key != "" {
		fmt.Fprintln(out, "first key:", key)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { ln.Close() })
	err = server.Serve(ln)
	defer server.Close()
	if ctx.Err() == nil {
		return err
	}
	drain, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return e.Stop(drain)
}
