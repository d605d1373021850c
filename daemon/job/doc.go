// Package job owns the jobs of a device: every piece of work that a request of
// the pipeline is cut into, and every piece that a provider without libp2p takes
// over HTTP. It knows their states, who runs them and for how long that is
// promised, and keeps of them what may survive a restart: states, times, counts,
// scores and hashes, never a prompt, a plan or an answer.
//
// It must not know HTTP, the mesh or a database: what it keeps goes through an
// interface, what providers are told goes through a channel. docs/jobs.md tells
// its rules.
package job
