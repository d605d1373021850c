package spoke

import "github.com/chordwheel/chordwheel/mesh/wire"

// SetRoom makes the budget of strangers small enough for a test.
func (s *Server) SetRoom(n int64) { s.strangers = wire.NewRoom(n) }
