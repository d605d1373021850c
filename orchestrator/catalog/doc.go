// Package catalog owns what the owner of a mesh declares: providers and their
// models, prices, priors, primitives and their default orders, workspaces,
// ceilings. It reads that from YAML and validates it whole: [Parse] gives either
// a catalogue without a fault, or every fault with its line and column.
//
// It is pure: it knows no file, no watcher and no device. What reality says
// about an option (latency, reliability) is learned elsewhere; here stands only
// what was declared. The format, with defaults and an example per field, is
// docs/catalogue.md.
package catalog
