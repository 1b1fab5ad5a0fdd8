// SPDX-License-Identifier: Apache-2.0

// Package jobs keeps the external jobs that steps wait for: which there are, when their
// services are asked about them, what services have said of them, and which are to be told
// that nobody waits any more.
//
// It decides when a service is asked, and which delivery belongs to which job. What follows
// from an answer for a run is decided by the machine; how to talk to a service is known to its
// provider.
package jobs
