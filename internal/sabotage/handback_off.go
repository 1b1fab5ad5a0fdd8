// SPDX-License-Identifier: Apache-2.0

//go:build !sabotage_handback

package sabotage

// HandBack removes a guard. Engine: attempts that an orderly stop gave up are handed back, not lost (F45).
const HandBack = false
