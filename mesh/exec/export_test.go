package exec

// RoomUsed gives the bytes that opening frames and payloads hold.
func (s *Server) RoomUsed() int64 { return s.opening.Used() + s.payloads.Used() }
