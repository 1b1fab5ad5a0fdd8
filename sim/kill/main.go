// SPDX-License-Identifier: Apache-2.0

// Command kill kills the real binary.
package main

func main() {}
