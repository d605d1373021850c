// Package wave owns how sub-jobs are run: who is asked first, how work is spread
// over providers and devices, how many copies run, when a copy is hedged, which one
// wins, and what becomes of the others. It knows tasks and offers, and runs them
// through the [Runner] that it declares, so that it can be tried on simulated time.
//
// It must not know prompts, plans or scores, an option's adapter, or how a walk
// goes on after a failure. docs/pipeline.md tells its rules.
package wave
