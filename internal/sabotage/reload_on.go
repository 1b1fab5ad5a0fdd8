// SPDX-License-Identifier: Apache-2.0

//go:build sabotage_reload

package sabotage

// Reload removes a guard. Engine: a run that has changed since its batch was sealed stays in memory (I2).
const Reload = true
