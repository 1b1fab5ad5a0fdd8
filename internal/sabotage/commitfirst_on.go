// SPDX-License-Identifier: Apache-2.0

//go:build sabotage_commitfirst

package sabotage

// CommitFirst removes a guard. Engine: what a transition asks for leaves after its commit (I1).
const CommitFirst = true
