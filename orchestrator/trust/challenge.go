package trust

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"sync"
	"time"
)

// ChallengeLife is how long a challenge may be answered.
const ChallengeLife = 2 * time.Minute

const (
	challengeRandom = 16
	challengeSum    = 16
	challengeLen    = challengeRandom + 8 + challengeSum
	maxUsed         = 1 << 16
)

var (
	errChallenge     = errors.New("the challenge is not ours, or of another DID")
	errChallengeOld  = errors.New("the challenge has expired")
	errChallengeUsed = errors.New("the challenge was used before")
	errChallengeFull = errors.New("too many challenges were used within their life")
)

// challenges hands challenges out and takes them back. What was handed out is not
// kept: a challenge is random bytes, its expiry (Unix milliseconds, big endian) and
// an HMAC over both and the DID, so that asking for them costs a stranger's time and
// none of our memory. Kept are those that were used, until they expire; they came with
// a proof from somebody who may have tokens.
type challenges struct {
	secret [32]byte
	most   int

	mu     sync.Mutex
	used   map[[challengeRandom]byte]time.Time
	looked time.Time
}

func newChallenges(most int) *challenges {
	c := &challenges{most: most, used: map[[challengeRandom]byte]time.Time{}}
	_, _ = rand.Read(c.secret[:]) // it never fails
	return c
}

func (c *challenges) sum(body []byte, did string) []byte {
	mac := hmac.New(sha256.New, c.secret[:])
	mac.Write(body)
	mac.Write([]byte(did))
	return mac.Sum(nil)[:challengeSum]
}

// issue makes a challenge for a DID.
func (c *challenges) issue(did string, now time.Time) (text string, expires time.Time) {
	expires = now.Add(ChallengeLife).Truncate(time.Millisecond)
	b := make([]byte, challengeRandom, challengeLen)
	_, _ = rand.Read(b)
	b = binary.BigEndian.AppendUint64(b, uint64(expires.UnixMilli()))
	return base64.RawURLEncoding.EncodeToString(append(b, c.sum(b, did)...)), expires
}

// check reads a challenge that was issued for the DID and is not used yet.
func (c *challenges) check(text, did string, now time.Time) (id [challengeRandom]byte, expires time.Time, err error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) != challengeLen || len(text) != base64.RawURLEncoding.EncodedLen(challengeLen) {
		return id, expires, errChallenge
	}
	body, sum := b[:challengeLen-challengeSum], b[challengeLen-challengeSum:]
	if !hmac.Equal(sum, c.sum(body, did)) {
		return id, expires, errChallenge
	}
	id, expires = [challengeRandom]byte(body), time.UnixMilli(int64(binary.BigEndian.Uint64(body[challengeRandom:])))
	if !now.Before(expires) {
		return id, expires, errChallengeOld
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, used := c.used[id]; used {
		return id, expires, errChallengeUsed
	}
	return id, expires, nil
}

// use marks a checked challenge as used. Of several at once one succeeds.
func (c *challenges) use(id [challengeRandom]byte, expires, now time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, used := c.used[id]; used {
		return errChallengeUsed
	}
	if full := len(c.used) >= c.most; now.Sub(c.looked) >= time.Minute || full && now.Sub(c.looked) >= time.Second {
		for id, until := range c.used {
			if !now.Before(until) {
				delete(c.used, id)
			}
		}
		c.looked = now
	}
	if len(c.used) >= c.most {
		return errChallengeFull
	}
	c.used[id] = expires
	return nil
}
