package s3queue

import "sync"

// maxSettled bounds the memory of settledIDs to about a megabyte.
const maxSettled = 8192

// settledIDs remembers jobs that are completed. A done job never changes again,
// so this spares the look at the last completed observation of a source with
// each later one. It decides only that such a job need not be looked at.
type settledIDs struct {
	mu  sync.Mutex
	ids map[string]struct{}
}

func (s *settledIDs) add(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids == nil || len(s.ids) >= maxSettled {
		s.ids = map[string]struct{}{}
	}
	s.ids[id] = struct{}{}
}

func (s *settledIDs) has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.ids[id]
	return ok
}
