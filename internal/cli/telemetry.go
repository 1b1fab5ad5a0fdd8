// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/telemetry"
)

// exportTimeout is how long one export of spans may take.
const exportTimeout = 5 * time.Second

// telemetry returns what observes the runs of this process as the settings say, or nil if
// neither they nor metrics ask for something.
func (a *app) telemetry(ctx context.Context, metrics bool) (*telemetry.Telemetry, error) {
	endpoint := a.config.Get("trace.endpoint")
	logged := a.config.Get("log.format").Value != telemetry.LogOff
	if endpoint.Origin == "default" && !logged && !metrics {
		return nil, nil
	}
	cfg := telemetry.Config{
		Recipes: a.config.Number("metrics.recipes"), Accounts: a.config.Number("metrics.accounts"),
		Version: thisBuild().Version, Logger: a.log, ExportTimeout: exportTimeout,
	}
	if logged {
		cfg.Steps = a.log
	}
	if endpoint.Origin != "default" {
		if a.exporter == nil {
			return nil, fault.New(fault.ConfigInvalid, "trace.endpoint: this binary was built without an exporter of traces; leave the setting out, or build it without -tags small")
		}
		var err error
		if cfg.Exporter, err = a.exporter(ctx, endpoint.Value, exportTimeout); err != nil {
			return nil, err
		}
	}
	return telemetry.New(cfg), nil
}
