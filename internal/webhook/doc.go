// SPDX-License-Identifier: Apache-2.0

// Package webhook tells other systems what has changed in an account.
//
// It decides which changes of an account's feed a hook is told of, what the message has,
// how it is signed (Standard Webhooks: HMAC-SHA256 and ed25519), which answers of a
// receiver are a success, a reason to try again or the end of the hook, and how far the
// feed has been read. A delivery is a run of a built-in recipe: the engine keeps, repeats
// and schedules it as any other run, and its id follows from the hook and the change, so
// that neither a crash nor a second reader of the feed makes a second one.
//
// These runs belong to an account of their own, one for each hook ([Account]): they are in
// no list, feed, limit or bill of the account that has the hook, and no hook is told of them.
//
// The package never decides which addresses may be reached (package egress), never shows a
// secret but to whom it is given, never writes one to a journal, and never follows a redirect.
// It serves no requests.
package webhook
