package audit

// SetBurst lets a sender send n receipts at once.
func (s *Service) SetBurst(n int) { s.senders = newPace[string](senderEvery, n) }
