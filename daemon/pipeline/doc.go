// Package pipeline owns what a hard question goes through: it is classified, cut
// into parts, the parts are worked on in waves, and one answer is made of them,
// scored and rewritten. Each step is one or more sub-jobs that walk the chains of
// llm.t1, llm.t2 and llm.t3, through package wave; there is no other way to run
// anything. Whatever fails on the way, the caller gets an answer as long as any
// model gives one.
//
// It must not know options, peers, HTTP or a disk. Plans, scores and results are
// foreign input: they are bounded, never executed, and neither logged nor kept.
// docs/pipeline.md tells its rules.
package pipeline
