package audit

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/merkle"
	"github.com/chordwheel/chordwheel/chain/receipt"
	"github.com/chordwheel/chordwheel/orchestrator/authority"
	"github.com/chordwheel/chordwheel/orchestrator/ledger"
)

// CheckpointFile is where the newest signed checkpoint is kept.
const CheckpointFile = "ledger-checkpoint"

// Bounds.
const (
	maxInFlight = 256
	ahead       = time.Minute // how far a device's clock may be before the hub's
	wayAhead    = time.Hour   // how far it may be for its receipts to be taken once they are due
	signEvery   = time.Minute // of a ledger that grows and that nobody asks
	signLines   = 256         // likewise
)

// Files keeps the newest checkpoint. Package store/datadir has one.
type Files interface {
	ReadChecked(name string) ([]byte, error)
	WriteChecked(name string, b []byte) error
}

// ErrSender is wrapped by the refusal of a signer that the ledger takes nothing of.
var ErrSender = errors.New("the ledger takes no receipts of this signer")

// Config of a [Service]. All but Doubt, Token and Log are required.
type Config struct {
	Key     chain.Key // signs checkpoints: the hub's identity
	Mesh    chain.MeshID
	Storage ledger.Storage
	Files   Files
	Resolve func(ctx context.Context, did string) ([]ed25519.PublicKey, error)
	// Doubt, which may be nil, is told that a signature does not fit what Resolve gave: the
	// document may have changed since it was fetched. again: Resolve will fetch it anew. Else
	// asOf is when it last was, a moment ago; zero: it cannot change.
	Doubt func(did string) (again bool, asOf time.Time)
	// Admit says whether a receipt is taken of its signer, before the signer's DID is
	// resolved, so that a stranger's name leads nowhere. Its signature is not checked yet.
	// Errors wrap [ErrSender]; with all others nobody knows now.
	Admit func(ctx context.Context, got *receipt.Signed) error
	// Token lets auditors read receipts; "": nobody may.
	Token chain.Secret
	Log   *slog.Logger
}

// Service is the ledger as others see it. Its methods may be called at once from
// several goroutines.
type Service struct {
	cfg      Config
	origin   string
	private  ed25519.PrivateKey
	ledger   *ledger.Log // nil: it did not open
	inFlight chan struct{}
	senders  *pace[string]       // receipts that are genuine
	refusals *pace[netip.Prefix] // of what came from an address
	twice    *twice

	mu     sync.Mutex // of all below
	newest merkle.Checkpoint
	signed []byte // of newest; nil before the first
	at     time.Time
}

// New opens the ledger. One that does not open is an error, and the service all
// the same: it answers everything with internal_error.
func New(cfg Config) (*Service, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Service{cfg: cfg, origin: merkle.Origin(cfg.Mesh), inFlight: make(chan struct{}, maxInFlight), at: time.Now(),
		senders: newPace[string](senderEvery, senderBurst), refusals: newPace[netip.Prefix](refusalEvery, refusalBurst), twice: newTwice(cfg.Log)}
	return s, s.open()
}

func (s *Service) open() error {
	raw, err := s.cfg.Key.Private().Raw()
	if err != nil || len(raw) != ed25519.PrivateKeySize {
		return fmt.Errorf("ledger: the hub's key: %w", errors.Join(err, errors.New("want an Ed25519 key")))
	}
	s.private = raw
	signed, err := s.cfg.Files.ReadChecked(CheckpointFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("ledger: read the newest checkpoint: %w", err)
	default:
		if s.newest, err = merkle.OpenCheckpoint(signed, s.origin, s.private.Public().(ed25519.PublicKey)); err != nil {
			return fmt.Errorf("ledger: the kept checkpoint: %w", err)
		}
		s.signed = signed
	}
	opened, err := ledger.Open(s.cfg.Storage, s.origin, s.newest)
	if err != nil {
		return fmt.Errorf("open the ledger: %w", err)
	}
	s.ledger = opened
	return nil
}

// Close signs what nobody asked about yet.
func (s *Service) Close() error {
	if s.ledger == nil {
		return nil
	}
	_, _, err := s.sign()
	return err
}

// Size is how many receipts the ledger has; 0 if it did not open.
func (s *Service) Size() int64 {
	if s.ledger == nil {
		return 0
	}
	return s.ledger.Checkpoint().Size
}

// Routes are the service's, for a listener that it shares.
func (s *Service) Routes() []authority.Route {
	return []authority.Route{
		{Method: http.MethodPost, Path: "/audit/v1/receipts", Handler: s.whole(s.take)},
		{Method: http.MethodGet, Path: "/audit/v1/receipts/*", Handler: s.whole(s.forAuditors(s.proven))},
		{Method: http.MethodGet, Path: "/audit/v1/proofs/*", Handler: s.whole(s.proof)},
		{Method: http.MethodGet, Path: "/audit/v1/checkpoint", Handler: s.whole(s.checkpoint)},
		{Method: http.MethodGet, Path: "/audit/v1/consistency", Handler: s.whole(s.consistency)},
		{Method: http.MethodGet, Path: "/audit/v1/inclusion", Handler: s.whole(s.inclusion)},
		{Method: http.MethodGet, Path: "/audit/v1/tile/*", Handler: s.whole(s.tile)},
		{Method: http.MethodGet, Path: "/audit/v1/key", Handler: s.key},
	}
}

// whole lets a bounded number of calls in, and none while there is no ledger.
func (s *Service) whole(h authority.Handler) authority.Handler {
	return func(w http.ResponseWriter, r *http.Request) (any, error) {
		if s.ledger == nil {
			return nil, authority.Refuse(authority.InternalError, "the ledger is not in order; the hub's log says why")
		}
		select {
		case s.inFlight <- struct{}{}:
			defer func() { <-s.inFlight }()
		default:
			r := authority.Refuse(authority.Overloaded, "the ledger takes as many calls as it may")
			r.RetryAfter = time.Second
			return nil, r
		}
		v, err := h(w, r)
		return v, s.meaning(err)
	}
}

// meaning makes refusals of the ledger's errors.
func (s *Service) meaning(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ledger.ErrConflict):
		return authority.Refuse(authority.Conflict, "another receipt of this signer stands under this transaction and message; the first one stays")
	case errors.Is(err, ledger.ErrNotFound):
		return authority.Refuse(authority.NotFound, "the ledger does not have it")
	case errors.Is(err, ledger.ErrBusy):
		r := authority.Refuse(authority.Overloaded, "too many receipts wait for the disk")
		r.RetryAfter = time.Second
		return r
	}
	var r *authority.Refusal
	if !errors.As(err, &r) && !errors.Is(err, context.Canceled) {
		s.cfg.Log.Error("the ledger failed", "error", err)
	}
	return err
}

// forAuditors lets in who has the service token.
func (s *Service) forAuditors(h authority.Handler) authority.Handler {
	return func(w http.ResponseWriter, r *http.Request) (any, error) {
		if err := s.auditor(w, r); err != nil {
			return nil, err
		}
		return h(w, r)
	}
}

func (s *Service) auditor(w http.ResponseWriter, r *http.Request) error {
	shown, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	want := s.cfg.Token.Reveal()
	if ok && want != "" && subtle.ConstantTimeCompare([]byte(shown), []byte(want)) == 1 {
		return nil
	}
	w.Header().Set("WWW-Authenticate", "Bearer")
	return authority.Refuse(authority.Unauthorized, "receipts are for auditors with the hub's CHORDWHEEL_LEDGER_TOKEN; proofs and checkpoints are for everybody")
}

// take is the intake. Who is refused too often is not listened to for a while: what
// an address sends costs the parsing and the check of a signature.
func (s *Service) take(w http.ResponseWriter, r *http.Request) (any, error) {
	from := remoteOf(r)
	if wait := s.refusals.wait(from, time.Now()); wait > 0 {
		return nil, tooMany(wait, "too much of what comes from this address is refused")
	}
	got, keys, err := s.read(w, r)
	if err != nil {
		var no *authority.Refusal
		if errors.Is(err, errUnfit) || errors.As(err, &no) && no.Status() < http.StatusInternalServerError {
			s.refusals.count(from, time.Now())
		}
		return nil, err
	}
	if wait := s.senders.count(got.Signer(), time.Now()); wait > 0 {
		return nil, tooMany(wait, "too many receipts of one signer at once")
	}
	place, err := s.add(r.Context(), &got)
	s.twice.look(s.ledger, &got, place, err, keys)
	if err != nil {
		return nil, err
	}
	c := s.ledger.Checkpoint()
	proof, err := s.ledger.Inclusion(place.Index, c.Size)
	if err != nil {
		return nil, err
	}
	s.signInTime(c.Size)
	authority.Answer(w, http.StatusAccepted, authority.Accepted{Index: place.Index, Known: place.Known, Root: c.Root, Inclusion: proof})
	return nil, nil
}

// add puts a receipt under its transaction and message or, where another signer's stands
// there already, under the signer too. The parts of a request know its transaction and each
// other's messages: whoever was quicker could else keep the others' receipts out.
func (s *Service) add(ctx context.Context, got *receipt.Signed) (ledger.Place, error) {
	id := ledger.ID{Transaction: got.TransactionID, Message: got.MessageID}
	place, err := s.ledger.Add(ctx, id, got.Line)
	if !errors.Is(err, ledger.ErrConflict) {
		return place, err
	}
	index, other := s.ledger.Find(id)
	if other != nil {
		return place, other
	}
	if by, other := s.signer(index); other != nil || by == got.Signer() {
		return place, errors.Join(other, err)
	}
	return s.ledger.Add(ctx, under(id, got.Signer()), got.Line)
}

// under is the ID of a receipt that is not the first one under id.
func under(id ledger.ID, signer string) ledger.ID {
	sum := sha256.Sum256([]byte(signer))
	id.Message += "/" + hex.EncodeToString(sum[:])
	return id
}

// signer tells whose the receipt at an index is.
func (s *Service) signer(index int64) (string, error) {
	line, err := s.ledger.Line(index)
	if err != nil {
		return "", err
	}
	r, err := receipt.Parse(line)
	return r.Signer(), err
}

// find gives the index of a signer's receipt; of the first one's without a signer.
func (s *Service) find(id ledger.ID, signer string) (int64, error) {
	index, err := s.ledger.Find(id)
	if err != nil || signer == "" {
		return index, err
	}
	if by, err := s.signer(index); err != nil || by == signer {
		return index, err
	}
	return s.ledger.Find(under(id, signer))
}

func tooMany(wait time.Duration, message string) error {
	return &authority.Refusal{Code: authority.RateLimited, Message: message, RetryAfter: wait}
}

// read gives the receipt of a request, which is genuine and of somebody who may send
// it, and the keys that its signer stands for.
func (s *Service) read(w http.ResponseWriter, r *http.Request) (got receipt.Signed, keys []ed25519.PublicKey, err error) {
	var body json.RawMessage
	if err := authority.Decode(w, r, receipt.MaxReceipt, &body); err != nil {
		return got, nil, err
	}
	if got, err = receipt.Parse(body); err != nil {
		return got, nil, authority.Refuse(authority.InvalidRequest, "%v", err)
	}
	if err := early(&got, time.Now()); err != nil {
		return got, nil, err
	}
	if err := s.cfg.Admit(r.Context(), &got); errors.Is(err, ErrSender) {
		return got, nil, authority.Refuse(authority.UnknownSender, "%v: it is no device of the mesh and no agent of the catalogue; ledger_senders lists others", ErrSender)
	} else if err != nil {
		return got, nil, err
	}
	keys, err = s.genuine(r.Context(), &got)
	return got, keys, err
}

// early refuses a receipt that is from the future. One that time will make right may come
// again: it is genuine, and the only one that its device has.
func early(got *receipt.Signed, now time.Time) error {
	latest := got.RequestAt
	if got.ResponseAt.After(latest) {
		latest = got.ResponseAt
	}
	const message = "the receipt is from the future: set the device's clock"
	switch by := latest.Sub(now); {
	case by <= ahead:
		return nil
	case by <= wayAhead:
		return &authority.Refusal{Code: authority.TooEarly, Message: message, RetryAfter: by - ahead + time.Second}
	}
	return authority.Refuse(authority.InvalidRequest, "%s", message)
}

// sign gives the newest checkpoint, which is on disk before it is given.
func (s *Service) sign() (merkle.Checkpoint, []byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.ledger.Checkpoint()
	if s.signed != nil && c.Size == s.newest.Size {
		return s.newest, s.signed, nil
	}
	signed, err := c.Sign(s.private)
	if err == nil {
		err = s.cfg.Files.WriteChecked(CheckpointFile, signed)
	}
	if err != nil {
		return c, nil, fmt.Errorf("sign a checkpoint: %w", err)
	}
	s.newest, s.signed, s.at = c, signed, time.Now()
	return c, signed, nil
}

// signInTime signs where much came since the last time, so that little of a lost
// database could go unnoticed.
func (s *Service) signInTime(size int64) {
	s.mu.Lock()
	due := size-s.newest.Size >= signLines || size > s.newest.Size && time.Since(s.at) >= signEvery
	s.mu.Unlock()
	if !due {
		return
	}
	if _, _, err := s.sign(); err != nil {
		s.cfg.Log.Error("the ledger failed", "error", err)
	}
}

func (s *Service) proven(_ http.ResponseWriter, r *http.Request) (any, error) {
	proof, err := s.prove(strings.TrimPrefix(r.URL.Path, "/audit/v1/receipts/"), r.URL.Query().Get("signer"))
	if err != nil {
		return nil, err
	}
	line, err := s.ledger.Line(proof.Inclusion.Index)
	return receipt.Proven{Receipt: line, Checkpoint: proof.Checkpoint, Inclusion: proof.Inclusion}, err
}

func (s *Service) proof(_ http.ResponseWriter, r *http.Request) (any, error) {
	return s.prove(strings.TrimPrefix(r.URL.Path, "/audit/v1/proofs/"), r.URL.Query().Get("signer"))
}

// prove proves what stands under TRANSACTION/MESSAGE, of a signer if that is named, under
// the newest checkpoint.
func (s *Service) prove(id, signer string) (p authority.Proof, err error) {
	transaction, message, ok := strings.Cut(id, "/")
	if !ok {
		return p, ledger.ErrNotFound
	}
	index, err := s.find(ledger.ID{Transaction: transaction, Message: message}, signer)
	if err != nil {
		return p, err
	}
	c, signed, err := s.sign()
	if err != nil {
		return p, err
	}
	p.Checkpoint = string(signed)
	p.Inclusion, err = s.ledger.Inclusion(index, c.Size)
	return p, err
}

func (s *Service) checkpoint(w http.ResponseWriter, _ *http.Request) (any, error) {
	_, signed, err := s.sign()
	if err != nil {
		return nil, err
	}
	write(w, "text/plain; charset=utf-8", false, signed)
	return nil, nil
}

func (s *Service) consistency(_ http.ResponseWriter, r *http.Request) (any, error) {
	n, err := numbers(r, "from", "to")
	if err != nil {
		return nil, err
	}
	return s.ledger.Consistency(n[0], n[1])
}

func (s *Service) inclusion(_ http.ResponseWriter, r *http.Request) (any, error) {
	n, err := numbers(r, "index", "size")
	if err != nil {
		return nil, err
	}
	return s.ledger.Inclusion(n[0], n[1])
}

func numbers(r *http.Request, names ...string) (out []int64, err error) {
	q := r.URL.Query()
	for _, name := range names {
		n, err := strconv.ParseInt(q.Get(name), 10, 64)
		if err != nil || n < 0 {
			return nil, authority.Refuse(authority.InvalidRequest, "%s: want a number from 0", name)
		}
		out = append(out, n)
	}
	return out, nil
}

func (s *Service) tile(w http.ResponseWriter, r *http.Request) (any, error) {
	name := strings.TrimPrefix(r.URL.Path, "/audit/v1/")
	entries := strings.HasPrefix(name, "tile/entries/")
	if entries {
		if err := s.auditor(w, r); err != nil {
			return nil, err
		}
	}
	b, full, err := s.ledger.Tile(name)
	if err != nil {
		return nil, err
	}
	write(w, "application/octet-stream", full && !entries, b)
	return nil, nil
}

func (s *Service) key(http.ResponseWriter, *http.Request) (any, error) {
	return authority.LedgerKey{Origin: s.origin, DID: s.cfg.Key.DID()}, nil
}

// write writes bytes that are no JSON. What never changes may be kept for ever.
func write(w http.ResponseWriter, kind string, fixed bool, b []byte) {
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	if fixed {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	h.Set("Content-Length", strconv.Itoa(len(b)))
	_, _ = w.Write(b) // a caller who left is no error of ours
}
