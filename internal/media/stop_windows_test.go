// SPDX-License-Identifier: Apache-2.0

package media

// signalMisbehaviours are misbehaviours by signals: none on Windows.
var signalMisbehaviours map[string]func()
