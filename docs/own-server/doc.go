// SPDX-License-Identifier: Apache-2.0

// Command own-server is the program of docs/service.md that serves an engine of its own. Its
// tests check that the page shows it as it is, and run it.
package main
