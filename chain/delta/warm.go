package delta

import (
	"crypto/sha256"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// Conversation stands for one: a digest, so that nothing of it is kept. The zero
// value is none.
type Conversation [16]byte

// ConversationOf gives the conversation that a name, or its first messages, stand
// for; none if there are no bytes.
func ConversationOf(bytes []byte) (c Conversation) {
	if len(bytes) > 0 {
		sum := sha256.Sum256(bytes)
		copy(c[:], sum[:])
	}
	return c
}

// Bounds on what is remembered of conversations, in memory only.
const (
	maxWarm  = 1024
	warmLife = time.Hour // the caches that make a warm path worth something live no longer
)

// warmth is the last good option of recent conversations.
type warmth struct {
	paths map[talk]path
	ring  [maxWarm]talk // in the order they came
	next  int
}

type talk struct {
	slot chain.Slot
	of   Conversation
}

type path struct {
	option chain.OptionID
	at     time.Time
}

func newWarmth() warmth { return warmth{paths: map[talk]path{}} }

// Warm notes that option answered in a conversation.
func (b *Book) Warm(slot chain.Slot, c Conversation, option chain.OptionID, now time.Time) {
	if c == (Conversation{}) {
		return
	}
	w, t := &b.warm, talk{slot, c}
	if _, known := w.paths[t]; !known {
		delete(w.paths, w.ring[w.next]) // the oldest, once the ring is full
		w.ring[w.next] = t
		w.next = (w.next + 1) % maxWarm
	}
	w.paths[t] = path{option, now}
}

// last gives a conversation's last good option, "" for none.
func (w *warmth) last(slot chain.Slot, c Conversation, now time.Time) chain.OptionID {
	if c == (Conversation{}) {
		return ""
	}
	p, ok := w.paths[talk{slot, c}]
	if age := now.Sub(p.at); !ok || age < 0 || age >= warmLife {
		return ""
	}
	return p.option
}

// warmed gives the order with the credit of the warm option taken in: it passes
// those in front of it that are worse by less than the credit makes up for.
func (s *state) warmed(option chain.OptionID, credit float64) []int {
	if option == "" {
		return s.order
	}
	at := -1
	for i, place := range s.order {
		if s.ids[place] == option {
			at = i
			break
		}
	}
	if at < 1 {
		return s.order
	}
	with := s.priced[s.order[at]].index - credit
	to := at
	for to > 0 && s.priced[s.order[to-1]].index > with {
		to--
	}
	if to == at {
		return s.order
	}
	return advance(s.order, at, to)
}
