package memory

// waiters are the channels of those who wait for one work ID.
type waiters map[chan struct{}]struct{}

// Wake implements [backend.Waker]. No wake-up is lost.
func (b *Backend) Wake(workID string) (woken <-chan struct{}, stop func()) {
	s := b.shard(workID)
	channel := make(chan struct{}, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiters == nil {
		s.waiters = make(map[string]waiters)
	}
	if s.waiters[workID] == nil {
		s.waiters[workID] = make(waiters)
	}
	s.waiters[workID][channel] = struct{}{}
	return channel, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.waiters[workID], channel)
		if len(s.waiters[workID]) == 0 {
			delete(s.waiters, workID)
		}
	}
}

// wake tells those who wait for workID. s is locked, so that whoever is woken finds what it was told of.
func (s *shard) wake(workID string) {
	for channel := range s.waiters[workID] {
		select {
		case channel <- struct{}{}:
		default: // it has been told and has not looked yet
		}
	}
}
