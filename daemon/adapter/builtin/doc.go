// Package builtin owns primer, the small model inside the binary: it lets a
// first run answer without a key, a download or a network. It is a retrieval
// model. It knows what stands in primer.txt, can do sums and convert units, and
// says that it does not know for everything else. It never makes text up.
//
// The text is indexed at the first question: BM25 over stemmed words, the
// cosine to the ways each question may be put, and character trigrams for
// misspelt words. The test's golden set of questions holds it to what
// docs/adapters.md says it can do.
//
// The package knows the shape of chat requests and answers. It opens no socket
// and no file, and keeps nothing of what it was asked.
package builtin
