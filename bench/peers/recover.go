// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"
)

// recovery kills everything once all executions wait, and measures the time from the
// start of the database, or of the peer's process if there is no database, until the step
// after an event is called.
func (s *session) recovery(ctx context.Context, p *spec, l *line, c *childProcess, args []string) error {
	for _, phase := range []string{"empty", "begin"} {
		if _, err := c.next(phase); err != nil {
			return err
		}
		if err := c.goOn(); err != nil {
			return err
		}
	}
	waiting, err := c.next("end")
	if err != nil {
		return err
	}
	if err := killTree(ctx, c.cmd.Process.Pid); err != nil {
		return err
	}
	database := p.needs == "postgres"
	if database {
		if err := s.cluster.crash(ctx); err != nil {
			return err
		}
	}
	began := time.Now()
	if database {
		if err := s.cluster.run(ctx, nil); err != nil {
			return err
		}
	}
	heir, err := startChild(ctx, c.dir, append(args, "-signal", waiting.Address))
	if err != nil {
		return err
	}
	defer heir.end()
	if _, err := heir.next("end"); err != nil {
		return err
	}
	l.figures = *waiting.Figures
	l.Seconds = time.Since(began).Seconds()
	return killTree(ctx, heir.cmd.Process.Pid)
}
