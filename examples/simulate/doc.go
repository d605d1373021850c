// Package simulate is a folder of worlds for `chordwheel simulate`; its test
// holds the page to the files. It owns no code.
package simulate
