// SPDX-License-Identifier: Apache-2.0

//go:build sabotage_window

package sabotage

// Window removes a guard. Machine: a loop works on at most maxConcurrency items at once (X59).
const Window = true
