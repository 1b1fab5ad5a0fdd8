// SPDX-License-Identifier: Apache-2.0

// Package workspace keeps the directories of runs (X162).
//
// It decides where the directory of a run is, when it is made and when it is removed: never before the
// run has ended and its attempts have returned, and soon after that, also when the process was killed
// meanwhile (X235). It has the actions with which recipes use such directories, and their bounds.
//
// It never removes what it has not made (R25): a directory is one of its own only if its name follows
// from the run that a file in it names. It decides nothing about runs, and what it keeps is neither part
// of a journal nor of a backup.
package workspace
