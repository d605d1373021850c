// Package keyring owns a device's secrets for paid services: keys by name.
// Policy and catalogue only ever say the name. A secret comes out as a
// [chain.Secret], goes to the adapter that sends it to its owner, and never
// into the database, a log or an error. The package knows nothing of who asks.
//
// # Sources
//
// A name is looked up in the environment first (CHORDWHEEL_KEY_<NAME>, the name
// in upper case, everything but letters and digits an underscore), then in
// keys.json in the data directory. An entry of keys.json holds the secret itself
// or, where the owner chose that, says that the operating system's key ring has
// it. That ring is asked only for such entries, once per change, and is waited for
// 3 s at most: on a machine without a session it answers late or never.
//
// # keys.json, format 1
//
//	{"sum":"<sha256, 64 hex digits, of all bytes behind the comma>",
//	 "format":1,"serial":7,"keys":{"groq":{"changed":7,"secret":"…"},"acme":{"changed":3,"system":true}}}
//
// written without the line break and spaces above. The sum stands first and covers
// the rest, in every format. Serial grows with every write and is no lower than its
// Unix milliseconds; changed is the serial of the write that set the key last, also
// to the same value. Mode 0600, replaced atomically, writers exclude each other by a
// lock on keys.lock.
package keyring
