// SPDX-License-Identifier: Apache-2.0

package cli

import "testing"

func TestMigrationPage(t *testing.T) { runPage(t, "migration") }

func TestLintPage(t *testing.T) { runPage(t, "lint") }
