// SPDX-License-Identifier: Apache-2.0

// Run serves the external service of the examples on 127.0.0.1:8480 until it is
// stopped, and prints the requests it receives. It decides nothing.
package main

import (
	"flag"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/roux-engine/roux/examples/service"
)

func main() {
	addr := flag.String("listen", "127.0.0.1:8480", "address to listen on")
	flag.Parse()
	s := service.New()
	fmt.Println("listening on http://" + *addr)
	server := &http.Server{Addr: *addr, ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.ServeHTTP(w, r)
		fmt.Println(r.Method, r.URL)
	})}
	log.Fatal(server.ListenAndServe())
}
