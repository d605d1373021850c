package orchestrator

import (
	"crypto/rand"
	"maps"
	"slices"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// topicOverlap is how long an old topic key stays valid beside the new one.
const topicOverlap = 24 * time.Hour

// topicKeys gives the keys of scopes, making those that are missing.
func (h *Hub) topicKeys(scopes []chain.ScopeID, now time.Time) ([]wire.TopicKey, error) {
	var keys []wire.TopicKey
	for _, scope := range scopes {
		t, ok := h.topics[scope]
		if !ok {
			t = topic{Current: newTopicKey()}
			if err := put(h.cfg.Storage.Bucket(bucketTopics), string(scope), t); err != nil {
				return nil, err
			}
			h.topics[scope] = t
			h.joinTopics()
		}
		keys = append(keys, t.keys(scope, now)...)
	}
	return keys, nil
}

func (t topic) keys(scope chain.ScopeID, now time.Time) []wire.TopicKey {
	keys := []wire.TopicKey{{Scope: scope, Key: t.Current}}
	if len(t.Old) > 0 && chain.InstantOf(now) < t.Until {
		keys = append(keys, wire.TopicKey{Scope: scope, Key: t.Old, Until: t.Until})
	}
	return keys
}

func newTopicKey() []byte {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // it never fails
	return b
}

// rotateTopics makes new keys, so that who was revoked hears no more after a day.
func (h *Hub) rotateTopics(scopes []chain.ScopeID, now time.Time) error {
	for _, scope := range scopes {
		next := topic{Current: newTopicKey(), Old: h.topics[scope].Current, Until: chain.InstantOf(now.Add(topicOverlap))}
		if err := put(h.cfg.Storage.Bucket(bucketTopics), string(scope), next); err != nil {
			return err
		}
		h.topics[scope] = next
	}
	h.joinTopics()
	return nil
}

// joinTopics tells the publisher all keys that devices may hold. In a mesh of very
// many scopes that is work: it is put off until the last one's share of time is over.
func (h *Hub) joinTopics() {
	var keys []wire.TopicKey
	now := time.Now()
	if h.rejoin = now.Before(h.nextJoin); h.rejoin {
		return
	}
	defer func() { h.nextJoin = time.Now().Add(lookShare * time.Since(now)) }()
	for _, scope := range slices.Sorted(maps.Keys(h.topics)) {
		keys = append(keys, h.topics[scope].keys(scope, now)...)
	}
	if len(keys) > 0 {
		h.outbox.join(keys)
	}
}

// expireTopics lets go of old keys whose day is over.
func (h *Hub) expireTopics() {
	now, changed := chain.InstantOf(time.Now()), false
	for scope, t := range h.topics {
		if len(t.Old) > 0 && now >= t.Until {
			t.Old, t.Until, changed = nil, 0, true
			h.topics[scope] = t
		}
	}
	if changed {
		h.joinTopics()
	}
}
