// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/persistence/sql/sqlplugin/postgresql"
	"go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	sqliteschema "go.temporal.io/server/schema/sqlite"
	"go.temporal.io/server/temporal"
	"go.temporal.io/server/tools/common/schema"
	sqltool "go.temporal.io/server/tools/sql"
)

const (
	temporalNamespace = "peers"
	temporalCluster   = "active"
)

// temporalServer is all of Temporal's services in this process.
type temporalServer struct {
	server  temporal.Server
	address string
}

func (s *temporalServer) Close() error { return s.server.Stop() }

// unlimited lifts rate limits that would otherwise determine the results: with the
// defaults a single execution advances about ten steps per second
// (history.transferProcessorMaxPollRPS is 20 per shard).
func unlimited() dynamicconfig.StaticClient {
	const much = 1_000_000
	return dynamicconfig.StaticClient{
		dynamicconfig.TransferProcessorMaxPollRPS.Key():                         much,
		dynamicconfig.TimerProcessorMaxPollRPS.Key():                            much,
		dynamicconfig.VisibilityProcessorMaxPollRPS.Key():                       much,
		dynamicconfig.OutboundProcessorMaxPollRPS.Key():                         much,
		dynamicconfig.FrontendRPS.Key():                                         much,
		dynamicconfig.FrontendMaxNamespaceRPSPerInstance.Key():                  much,
		dynamicconfig.FrontendMaxNamespaceVisibilityRPSPerInstance.Key():        much,
		dynamicconfig.FrontendMaxConcurrentLongRunningRequestsPerInstance.Key(): much,
		dynamicconfig.FrontendPersistenceMaxQPS.Key():                           much,
		dynamicconfig.HistoryRPS.Key():                                          much,
		dynamicconfig.HistoryPersistenceMaxQPS.Key():                            much,
		dynamicconfig.MatchingRPS.Key():                                         much,
		dynamicconfig.MatchingPersistenceMaxQPS.Key():                           much,
		dynamicconfig.VisibilityPersistenceMaxWriteQPS.Key():                    much,
		dynamicconfig.MatchingNumTaskqueueReadPartitions.Key():                  1,
		dynamicconfig.MatchingNumTaskqueueWritePartitions.Key():                 1,
	}
}

// startTemporal prepares the database and starts the server on free ports of
// the loopback interface.
func startTemporal(e env, onPostgres bool) (*temporalServer, error) {
	logger := log.NewZapLogger(log.BuildZapLogger(log.Config{Level: "error", Stdout: true}))
	shards := int32(1)
	prepare := temporalSQLite
	if onPostgres {
		shards, prepare = 4, temporalPostgres
	}
	store, visibility, err := prepare(e, logger)
	if err != nil {
		return nil, err
	}
	if !e.Again {
		namespace, err := sqliteschema.NewNamespaceConfig(temporalCluster, temporalNamespace, false, nil)
		if err != nil {
			return nil, err
		}
		// This writes to the configured store, whichever it is.
		if err := sqliteschema.CreateNamespaces(store, namespace); err != nil {
			return nil, err
		}
	}
	ports, err := keptPorts(e.Dir, 8)
	if err != nil {
		return nil, err
	}
	cfg := temporalConfig(store, visibility, shards, ports)
	server, err := temporal.NewServer(
		temporal.WithConfig(cfg), temporal.ForServices(temporal.DefaultServices), temporal.WithLogger(logger),
		temporal.WithDynamicConfigClient(unlimited()), temporal.WithAuthorizer(authorization.NewNoopAuthorizer()))
	if err != nil {
		return nil, err
	}
	if err := server.Start(); err != nil {
		return nil, err
	}
	return &temporalServer{server, cfg.PublicClient.HostPort}, nil
}

// temporalConfig returns the server's own development configuration with this store and
// these ports.
func temporalConfig(store, visibility *config.SQL, shards int32, ports []int) *config.Config {
	frontend := fmt.Sprintf("127.0.0.1:%d", ports[0])
	cfg := &config.Config{}
	cfg.Global.Membership = config.Membership{MaxJoinDuration: 30 * time.Second, BroadcastAddress: "127.0.0.1"}
	cfg.Persistence = config.Persistence{
		DefaultStore: "store", VisibilityStore: "visibility", NumHistoryShards: shards,
		DataStores: map[string]config.DataStore{"store": {SQL: store}, "visibility": {SQL: visibility}},
	}
	cfg.ClusterMetadata = &cluster.Config{
		FailoverVersionIncrement: 10, MasterClusterName: temporalCluster, CurrentClusterName: temporalCluster,
		ClusterInformation: map[string]cluster.ClusterInformation{
			temporalCluster: {Enabled: true, InitialFailoverVersion: 1, RPCAddress: frontend},
		},
	}
	cfg.DCRedirectionPolicy = config.DCRedirectionPolicy{Policy: "noop"}
	cfg.Archival = config.Archival{
		History: config.HistoryArchival{State: "disabled"}, Visibility: config.VisibilityArchival{State: "disabled"},
	}
	cfg.NamespaceDefaults = config.NamespaceDefaults{Archival: config.ArchivalNamespaceDefaults{
		History: config.HistoryArchivalNamespaceDefaults{State: "disabled"}, Visibility: config.VisibilityArchivalNamespaceDefaults{State: "disabled"},
	}}
	cfg.PublicClient = config.PublicClient{HostPort: frontend}
	cfg.Services = map[string]config.Service{}
	for i, name := range []string{"frontend", "history", "matching", "worker"} {
		cfg.Services[name] = config.Service{RPC: config.RPC{GRPCPort: ports[2*i], MembershipPort: ports[2*i+1], BindOnIP: "127.0.0.1"}}
	}
	return cfg
}

// temporalSQLite configures a database file that is synced on every commit.
func temporalSQLite(e env, _ log.Logger) (store, visibility *config.SQL, err error) {
	store = &config.SQL{
		PluginName: sqlite.PluginName, DatabaseName: filepath.Join(e.Dir, "temporal.db"), MaxConns: 1, MaxIdleConns: 1,
		ConnectAttributes: map[string]string{"mode": "rwc", "journal_mode": "wal", "synchronous": "2"},
	}
	if e.Again {
		return store, store, nil
	}
	return store, store, sqliteschema.SetupSchema(store)
}

// temporalPostgres creates the server's two schemas in the empty database and in a second
// one, as its documentation requires.
func temporalPostgres(e env, logger log.Logger) (store, visibility *config.SQL, err error) {
	u, err := url.Parse(e.Postgres)
	if err != nil {
		return nil, nil, err
	}
	store = &config.SQL{
		PluginName: postgresql.PluginNamePGX, ConnectProtocol: "tcp", ConnectAddr: u.Host, User: u.User.Username(),
		DatabaseName: strings.TrimPrefix(u.Path, "/"), MaxConns: 40, MaxIdleConns: 40, MaxConnLifetime: time.Hour,
	}
	second := *store
	second.DatabaseName += "_visibility"
	second.MaxConns, second.MaxIdleConns = 10, 10
	if e.Again {
		return store, &second, nil
	}
	db, err := sqltool.NewConnection(store, logger)
	if err != nil {
		return nil, nil, err
	}
	defer db.Close()
	if err := db.CreateDatabase(second.DatabaseName); err != nil {
		return nil, nil, err
	}
	if err := temporalSchema(store, "postgresql/v12/temporal", logger); err != nil {
		return nil, nil, err
	}
	return store, &second, temporalSchema(&second, "postgresql/v12/visibility", logger)
}

func temporalSchema(store *config.SQL, name string, logger log.Logger) error {
	db, err := sqltool.NewConnection(store, logger)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := schema.NewSetupSchemaTask(db, &schema.SetupConfig{InitialVersion: "0.0"}, logger).Run(); err != nil {
		return fmt.Errorf("set up %s: %w", name, err)
	}
	if err := schema.NewUpdateSchemaTask(db, &schema.UpdateConfig{SchemaName: name, DBName: store.DatabaseName}, logger).Run(); err != nil {
		return fmt.Errorf("update %s: %w", name, err)
	}
	return nil
}
