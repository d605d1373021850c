// Package orchestrator owns the hub: it holds the policy of a mesh, takes in
// what devices report, and publishes signed chains. It is a strategist and never
// in the path of a request; all it knows of the world, devices told it.
//
// Whoever has the turn owns the state (the fleet, what was learned, what is
// published): the methods of [Hub], one at a time, and a loop that does what time
// brings. Durable writes happen within the turn, before the answer that depends
// on them. Gossip leaves through a second goroutine, so that a slow network holds
// nobody up.
//
// This package has no network code: devices' requests come in through the methods of
// spoke.Handler, and what it has to say goes out through a [Publisher]. It must
// not know hosts, streams, files or the database. docs/orchestrator.md says how
// the parts meet.
package orchestrator
