// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/config"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/local"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/secrets"
	"github.com/roux-engine/roux/internal/service"
	"github.com/roux-engine/roux/internal/view"
)

const (
	// defaultListen is where a server listens that is told nothing else.
	defaultListen = "127.0.0.1:7420"
	// adminVariable has a key with the role admin, in place of a stored one.
	adminVariable = "ROUX_ADMIN_KEY"
)

// A served is what a server says when it begins to listen.
type served struct {
	URL      string `json:"url"`
	Admin    string `json:"adminUrl,omitempty"`
	Data     string `json:"data"`
	FirstKey string `json:"firstKey,omitempty"`
	Keys     bool   `json:"keys"`
	// Recipes are those of the folder of dev, and Try a command that executes one.
	Recipes []devRecipe `json:"recipes,omitempty"`
	Try     string      `json:"try,omitempty"`
}

// A devRecipe is a recipe of the folder when the server begins.
type devRecipe struct {
	File    string `json:"file"`
	Name    string `json:"name"`
	Version string `json:"version"`
}

// serve is a server that is being started.
type serve struct {
	*app
	listen string
	admin  string
	open   bool
	check  bool
	drain  time.Duration
	folder string // whose recipes are registered, see dev; "" = none
	served recipesServed
	limit  int64 // of a recipe, in bytes
}

func (a *app) serveCommand() *cobra.Command {
	s := &serve{app: a, limit: defaultSource}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve recipes, runs, files and credits over HTTP",
		Long: "Serve recipes, runs, files and credits over HTTP, and carry on every run of the data directory, until SIGTERM or Ctrl-C. " +
			"The first start prints a key with the role admin, which is not stored and not printed again; with " + adminVariable + " in the environment, that is the key. " +
			"`/openapi.json` describes the interface.",
		Example: `roux serve
roux serve --listen 0.0.0.0:7420 --data /var/lib/roux
roux serve --check`,
		Args: wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd.Context()) },
	}
	cmd.Flags().StringVar(&s.admin, "admin", "", "address and port of a second listener with /metrics, /healthz and /readyz, which checks no keys (default: none)")
	cmd.Flags().BoolVar(&s.open, "no-keys", false, "check no keys: every request is the user's own; only on loopback")
	cmd.Flags().BoolVar(&s.check, "check", false, "open everything, say what is wrong, and serve nothing")
	s.flags(cmd)
	s.recipesFlag(cmd)
	return cmd
}

// flags adds the flags that serve and dev have.
func (s *serve) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.listen, "listen", defaultListen, "address and port; port 0 is one that is free")
	cmd.Flags().DurationVar(&s.drain, "drain", 30*time.Second, "how long attempts in progress may take after SIGTERM; what is not done is attempted again")
	cmd.Flags().Var((*config.Size)(&s.limit), "max-source", "largest recipe, up to 16MiB")
}

func (s *serve) run(ctx context.Context) error {
	a := s.app
	if s.limit < 1 || s.limit > maxSource {
		return fault.New(fault.Usage, "--max-source %d: want 1 byte to 16MiB", s.limit)
	}
	if err := s.openRecipes(); err != nil {
		return err
	}
	node.SetGC(a.getenv("GOGC"))
	dir, err := a.config.DataDir()
	if err != nil {
		return err
	}
	st, err := s.openStore(ctx, dir)
	if err != nil {
		return err
	}
	if err := s.unpackRecipes(dir); err != nil {
		return errors.Join(err, st.Close())
	}
	watched, err := a.telemetry(ctx, s.admin != "")
	if err != nil {
		return errors.Join(err, st.Close())
	}
	if v := a.config.Get("public-url"); v.Origin != "default" {
		a.built.UseAddress(v.Value)
	}
	failed, nesting := make(chan error, 1), a.config.Nesting()
	cfg := service.Config{
		Node: node.Config{
			Dir: dir, Actions: a.built, Retention: a.config.Retention(), Concurrency: a.config.Number("concurrency"), Logger: a.log, Accounts: a.rules(), Secrets: a.secretsIn(dir), Sealer: secrets.NewSealer(dir, a.getenv), Workspaces: nesting.Workspaces,
			CommitFailed: func(err error) {
				select {
				case failed <- err:
				default:
				}
			},
			Idle: s.check,
		},
		Account: a.account, AdminToken: a.getenv(adminVariable), Open: s.open, MaxSource: s.limit, Release: thisBuild().Version, Build: thisBuild().short(), Limits: nesting.Limits, NoRefs: nesting.NoRegistry,
	}
	if watched != nil {
		defer watched.Close()
		cfg.Node.Observer, cfg.Metrics = watched, watched.Handler()
	}
	srv, err := service.Open(ctx, st, cfg)
	if err != nil {
		return datadir.Error(dir, err)
	}
	err = s.serve(ctx, srv, dir, failed)
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.drain)
	defer cancel()
	return errors.Join(err, datadir.Error(dir, srv.Close(drain)))
}

// openStore opens the data directory. Whoever holds it cannot serve in place of this process, and
// may be a command that ends soon.
func (s *serve) openStore(ctx context.Context, dir string) (node.Store, error) {
	said := false
	return s.openWithin(ctx, dir, func(err error) bool {
		if !said {
			s.say("waiting up to %s: %s", patience, fault.Message(err))
			said = true
		}
		return true
	})
}

// serve listens until a signal, the end of ctx or a failure of the store.
func (s *serve) serve(ctx context.Context, srv *service.Service, dir string, failed <-chan error) error {
	sigs, stop := interrupts()
	defer stop()
	ln, err := s.bind("--listen", s.listen)
	if err != nil {
		return err
	}
	out := served{URL: "http://" + ln.Addr().String(), Data: dir, FirstKey: srv.FirstKey, Keys: !s.open}
	if s.check {
		s.show(out, func() { s.text("everything is fine: a server would listen on %s\n", out.URL) })
		return ln.Close()
	}
	if err := srv.Serve(ln); err != nil {
		return err
	}
	var folder *devFolder
	var looks sync.WaitGroup
	working, end := context.WithCancel(ctx)
	defer func() {
		end()
		looks.Wait()
	}()
	if s.folder != "" {
		opened := make(chan error, 1)
		looks.Go(func() {
			var err error
			folder, err = s.openFolder(working, srv, &out)
			opened <- err
		})
		if ended, err := s.until(ctx, sigs, dir, failed, opened); ended {
			return err
		}
	}
	if s.admin != "" {
		admin, err := s.bind("--admin", s.admin)
		if err != nil {
			return err
		}
		out.Admin = "http://" + admin.Addr().String()
		srv.ServeAdmin(admin)
	}
	socket, _, err := local.Listen(dir)
	if err != nil {
		return datadir.Error(dir, err)
	}
	srv.ServeLocal(socket)
	s.announce(&out)
	if folder != nil {
		looks.Go(func() { folder.follow(working) })
	}
	_, err = s.until(ctx, sigs, dir, failed, nil)
	return err
}

// until waits until done has no error. Otherwise the server ends: by that error, a signal, a
// failure of the store, or the end of ctx.
func (s *serve) until(ctx context.Context, sigs <-chan os.Signal, dir string, failed, done <-chan error) (ended bool, err error) {
	select {
	case err := <-done:
		return err != nil, err
	case <-sigs:
		s.say("stopping: attempts in progress have %s; Ctrl-C again stops at once", s.drain)
		s.hurry(sigs)
		return true, nil
	case err := <-failed:
		return true, datadir.Error(dir, err)
	case <-ctx.Done():
		return true, context.Cause(ctx)
	}
}

// bind listens at the address that a flag has.
func (s *serve) bind(flag, address string) (net.Listener, error) {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		e := fault.Wrap(fault.Usage, err, "%s %s: %v", flag, address, err)
		e.Remedy = "Give an address of this machine and a port up to 65535 that no other program has; port 0 is one that is free."
		return nil, e
	}
	return ln, nil
}

// hurry ends the time of attempts in progress when a second signal comes.
func (s *serve) hurry(sigs <-chan os.Signal) {
	go func() {
		<-sigs
		os.Exit(fault.ExitInterrupted)
	}()
}

// announce says where the server listens, and the first key.
func (s *serve) announce(out *served) {
	s.show(out, func() {
		s.text("listening on %s\n", out.URL)
		if out.Admin != "" {
			s.text("metrics at %s/metrics\n", out.Admin)
		}
		if out.FirstKey != "" {
			s.text("first key: %s\n", out.FirstKey)
		}
		for _, r := range out.Recipes {
			s.text("%s: %s@%s\n", view.OneLine(r.File), view.OneLine(r.Name), r.Version)
		}
	})
	switch {
	case out.FirstKey != "":
		s.say("the key has the role admin and is not stored: keep it. To try it:\n  curl -H 'Authorization: Bearer %s' %s/v1/me", out.FirstKey, out.URL)
	case s.open:
		s.say("no keys are checked: every program of this machine can use the server")
	}
	if out.Try != "" {
		s.say("To try it:\n  %s", view.OneLine(out.Try))
	}
}
