package ledger

import "github.com/chordwheel/chordwheel/store"

// OnBucket keeps a ledger in a bucket of the hub's database.
func OnBucket(b *store.Bucket) Storage { return bucket{b} }

type bucket struct{ b *store.Bucket }

func (s bucket) Get(key string) ([]byte, error) {
	var b []byte
	ok, err := s.b.Get(key, &b)
	if err != nil || !ok {
		return nil, err
	}
	return b, nil
}

func (s bucket) Put(records map[string][]byte) error {
	all := make(map[string]any, len(records))
	for key, b := range records {
		all[key] = b
	}
	return s.b.PutAll(all)
}
