package spoke

// SetRoom makes the budget of strangers small enough for a test.
func (s *Server) SetRoom(n int64) { s.strangers.most = n }
