package orchestrator

// ProtestSlots gives the number of slots whose protests are counted.
func (h *Hub) ProtestSlots() int { return len(h.protests) }
