// SPDX-License-Identifier: Apache-2.0

//go:build !sabotage_fsync

package sabotage

// Fsync removes a guard. Store: an answered commit is synced, in memory and in SQLite (I1, I21).
const Fsync = false
