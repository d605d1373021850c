// Package simulate owns a made-up world in which the real policy code is judged:
// a fleet of devices, providers whose true latencies and outages only the world
// knows, liars, ceilings, and a stream of requests with day and night. It drives
// the same learning, ordering, publishing, deltas, exploration, walk, leases and
// escalation as hub and device do, against baselines and two clairvoyants on
// exactly the same stream, and says what each of them cost.
//
// It is pure: a scenario and a seed come in, a result goes out, and the same two
// give the same bytes. It must not know a network, a disk, a clock, a hub's loop or
// a device's inside; what these do around the policy is told in few words here, and
// docs/policy.md says in which respects it is simpler.
package simulate
