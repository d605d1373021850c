// Package openai owns the OpenAI dialect as a client: it makes one attempt at
// a chat completion with any compatible server (a paid provider, Ollama,
// llama.cpp, vLLM, LM Studio) and says how it ended. It frames a server's
// event stream into chunks, tells output from noise, and rewrites the few
// members that must change (model, stream, stream_options, usage) in the raw
// JSON, so that every other byte passes as it came.
//
// It knows nothing of chains, retries, other options, callers or limits in
// time but the connect timeout: the walk above it cancels what takes too long.
// It keeps no content and logs none. The rules stand in docs/adapters.md.
package openai
