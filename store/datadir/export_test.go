package datadir

import "github.com/chordwheel/chordwheel/chain"

// EncodeMarks lets tests write a full file at once.
var EncodeMarks = encodeMarks

// Preset fills m in memory.
func Preset(m *Marks, all map[chain.Slot]chain.Mark) { m.all = all }
