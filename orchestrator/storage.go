package orchestrator

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/orchestrator/fleet"
	"github.com/chordwheel/chordwheel/orchestrator/publish"
)

// Bucket is a set of records by key, encoded as deterministic CBOR. A write
// returns when it is durable. Package store has one.
type Bucket interface {
	PutAll(records map[string]any) error
	Delete(keys ...string) error
	Each(f func(key string, decode func(v any) error) error) error
}

// Files is where small things are kept that must outlive the database. Errors
// of ReadChecked wrap fs.ErrNotExist where nothing was written yet. Package
// store/datadir has one.
type Files interface {
	ReadChecked(name string) ([]byte, error)
	WriteChecked(name string, b []byte) error
}

// Storage is what the hub keeps things in. All fields are required.
type Storage struct {
	Bucket func(name string) Bucket // the same name gives the same bucket
	Files  Files
}

// Names of files and buckets.
const (
	meshFile        = "mesh-id"
	revocationsFile = "revocations"
	sequenceFile    = "sequence"

	bucketDevices     = "hub-devices"
	bucketConflicts   = "hub-conflicts"
	bucketInvitations = "hub-invitations"
	bucketTopics      = "hub-topics"
	bucketEditions    = "hub-chains"
	bucketBodies      = "hub-bodies"
	bucketLearned     = "hub-learned"
	bucketSizes       = "hub-sizes"
	bucketQuota       = "hub-quota"
	bucketRates       = "hub-rates"
)

// MeshID gives the ID of the mesh that this data directory is the hub of. The
// first call makes it, at random.
func MeshID(files Files) (chain.MeshID, error) {
	b, err := files.ReadChecked(meshFile)
	if err == nil {
		return chain.MeshID(b), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read the mesh ID: %w", err)
	}
	raw := make([]byte, 10)
	_, _ = rand.Read(raw) // it never fails
	id := chain.MeshID(hex.EncodeToString(raw))
	if err := files.WriteChecked(meshFile, []byte(id)); err != nil {
		return "", fmt.Errorf("keep the mesh ID: %w", err)
	}
	return id, nil
}

// invitation is what is kept of one: the hash of its secret is its key.
type invitation struct {
	Scope   chain.ScopeID    `cbor:"scope"`
	Grant   []member.Pattern `cbor:"grant"`
	Uses    int              `cbor:"uses"` // left
	Made    chain.Instant    `cbor:"made"`
	Expires chain.Instant    `cbor:"expires"`
}

// topic holds the keys of one scope's gossip topics.
type topic struct {
	Current []byte        `cbor:"current"`
	Old     []byte        `cbor:"old,omitempty"`
	Until   chain.Instant `cbor:"until,omitempty"` // of the old one
}

// edition is what is kept of a published chain: its body stands in a bucket of
// its own, shared. A record holds those of a scope, by primitive. There may be hundreds of
// thousands, all of which a start reads: hence the short names.
type edition struct {
	Seq    uint64        `cbor:"s"`
	Body   []byte        `cbor:"b"` // CID
	Input  []byte        `cbor:"i"`
	At     chain.Instant `cbor:"a"`
	Issued chain.Instant `cbor:"t,omitempty"` // unless as At
}

func editionOf(e publish.Edition) edition {
	k := edition{Seq: e.Seq, Body: []byte(e.Body), Input: []byte(e.Input), At: e.At}
	if e.Issued != e.At {
		k.Issued = e.Issued
	}
	return k
}

func (k *edition) restored(slot chain.Slot) publish.Edition {
	e := publish.Edition{Slot: slot, Seq: k.Seq, Body: chain.CID(k.Body), Input: string(k.Input), At: k.At, Issued: k.Issued}
	if e.Issued == 0 {
		e.Issued = e.At
	}
	return e
}

// sequence keeps the highest number that chains may have, in a file of its own: a
// database that was lost must not make a hub begin again from a lower one.
type sequence struct {
	files   Files
	highest uint64
}

func openSequence(files Files) (*sequence, error) {
	s := &sequence{files: files}
	b, err := files.ReadChecked(sequenceFile)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		s.highest, err = strconv.ParseUint(string(b), 10, 62)
	}
	if err != nil {
		return nil, fmt.Errorf("read the highest sequence number: %w", err)
	}
	return s, nil
}

// Highest implements [publish.Sequence].
func (s *sequence) Highest() uint64 { return s.highest }

// Raise implements [publish.Sequence].
func (s *sequence) Raise(to uint64) error {
	if err := s.files.WriteChecked(sequenceFile, strconv.AppendUint(nil, to, 10)); err != nil {
		return fmt.Errorf("keep the highest sequence number: %w", err)
	}
	s.highest = to
	return nil
}

func put(b Bucket, key string, v any) error { return b.PutAll(map[string]any{key: v}) }

// load reads everything back.
func (h *Hub) load() error {
	if err := h.loadRevocations(); err != nil {
		return err
	}
	err := errors.Join(
		each(h, bucketDevices, func(_ string, d fleet.Device) error {
			h.fleet.Put(&d)
			h.serial = max(h.serial, d.Serial)
			return nil
		}),
		each(h, bucketConflicts, func(_ string, c fleet.Conflict) error { h.fleet.AddConflict(c); return nil }),
		each(h, bucketInvitations, func(hash string, i invitation) error { h.invitations[hash] = i; return nil }),
		each(h, bucketTopics, func(scope string, t topic) error { h.topics[chain.ScopeID(scope)] = t; return nil }),
		each(h, bucketLearned, func(key string, b []byte) error { return h.book.Restore(key, b) }),
		each(h, bucketSizes, func(key string, b []byte) error { return h.sizes.Restore(key, b) }),
		h.loadRates(),
		h.loadQuota(),
		h.loadEditions(),
	)
	now := time.Now()
	h.book.Rebase(now)
	h.sizes.Rebase(now)
	return err
}

// each reads a bucket. A record that cannot be read is passed over and said: what
// it held comes back with the devices' next visits.
func each[T any](h *Hub, name string, use func(key string, v T) error) error {
	return h.cfg.Storage.Bucket(name).Each(func(key string, decode func(any) error) error {
		var v T
		err := decode(&v)
		if err == nil {
			err = use(key, v)
		}
		if err != nil {
			h.log.Warn("a record of the hub cannot be read and is passed over", "bucket", name, "error", err)
		}
		return nil
	})
}

func (h *Hub) loadRevocations() error {
	b, err := h.cfg.Storage.Files.ReadChecked(revocationsFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the revocation list: %w", err)
	}
	list, err := member.VerifyRevocations(h.trust, b, 0, time.Now())
	if err != nil {
		return fmt.Errorf("the kept list of revoked memberships: %w", err)
	}
	h.revoked, h.revokedBytes = &list, b
	return nil
}

// loadEditions puts back what was published, and drops bodies that nothing speaks of.
func (h *Hub) loadEditions() error {
	if h.fleet.Count() > atOnce {
		debug.FreeOSMemory() // reading them left as much garbage as they take: one after the other the peak is lower
	}
	bodies := map[chain.CID][]byte{}
	err := errors.Join(
		each(h, bucketBodies, func(_ string, b []byte) error { bodies[chain.CIDOf(b)] = b; return nil }),
		each(h, bucketEditions, func(scope string, all map[chain.Primitive]edition) error {
			for p, e := range all {
				was := e.restored(chain.Slot{Scope: h.fleet.Name(chain.ScopeID(scope)), Primitive: h.catalogue.Name(p)})
				if b := bodies[was.Body]; b != nil && h.press.Restore(was, b) {
					h.kept[was.Body] = true
				}
			}
			return nil
		}),
	)
	var gone []string
	for cid := range bodies {
		if !h.kept[cid] {
			gone = append(gone, cid.String())
		}
	}
	if len(gone) > 0 {
		err = errors.Join(err, h.bodies.Delete(gone...))
	}
	return err
}

// dropBodies takes those off the disk that no device may walk any more.
func (h *Hub) dropBodies() {
	var gone []string
	for cid := range h.kept {
		if h.press.Body(cid) == nil {
			gone = append(gone, cid.String())
			delete(h.kept, cid) // should it come back it is written again
		}
	}
	if len(gone) == 0 {
		return
	}
	if err := h.bodies.Delete(gone...); err != nil {
		h.log.Warn("bodies of chains that nobody walks any more stay on the disk until the next start", "error", err)
	}
}

// keepEditions makes what was published survive a restart, before a head of it is
// signed: bodies first, then who has them, a few writes for however many. Losing it
// costs new sequence numbers and nothing else.
func (h *Hub) keepEditions() {
	if len(h.unkept) == 0 {
		return
	}
	bodies, editions := map[string]any{}, map[string]any{}
	var gone []string
	var errs []error
	for scope := range h.unkept {
		all := map[chain.Primitive]edition{}
		for i := range h.catalogue.Primitives {
			p := h.catalogue.Primitives[i].Name
			e, ok := h.press.Edition(chain.Slot{Scope: scope, Primitive: p})
			if !ok {
				continue
			}
			all[p] = editionOf(e)
			if !h.kept[e.Body] {
				bodies[e.Body.String()] = h.press.Body(e.Body)
				h.kept[e.Body] = true
			}
		}
		if len(all) == 0 {
			gone = append(gone, string(scope))
			continue
		}
		editions[string(scope)] = all
	}
	if len(bodies) > 0 {
		errs = append(errs, h.bodies.PutAll(bodies))
	}
	if len(editions) > 0 {
		errs = append(errs, h.editions.PutAll(editions))
	}
	if len(gone) > 0 {
		errs = append(errs, h.editions.Delete(gone...))
	}
	if err := errors.Join(errs...); err != nil {
		clear(h.kept)
		h.log.Error("keeping published chains failed: a restart gives them new sequence numbers", "scopes", len(h.unkept), "error", err)
	}
	clear(h.unkept)
}
