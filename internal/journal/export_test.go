// SPDX-License-Identifier: Apache-2.0

package journal

// Scopes is how many scopes the renderer remembers.
func (r *Renderer) Scopes() int { return len(r.causes.scopes) }
