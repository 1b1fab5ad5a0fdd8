// SPDX-License-Identifier: Apache-2.0

package media

// stopProbes are the misbehaviours that only this system knows: none.
var stopProbes map[string]func()
