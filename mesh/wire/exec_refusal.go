package wire

import (
	"fmt"

	"github.com/chordwheel/chordwheel/chain"
)

// ExecCode says, for programs, why an executor refused. A code that is not known
// is a refusal all the same.
type ExecCode string

// The codes. docs/wire.md has the table.
const (
	// It has no room or no wish now; nothing is wrong with the request.
	ExecBusy       ExecCode = "busy"        // concurrency, queue or streams are full: try another option
	ExecSharingOff ExecCode = "sharing_off" // its owner shares nothing now
	ExecShutdown   ExecCode = "shutdown"    // it is stopping

	// It lacks an envelope that was left out: all are sent once more.
	ExecNeed ExecCode = "need"
	// The nonce does not begin with its boot ID, which is in the refusal: it is asked
	// again, with a new nonce. See ExecNonce.
	ExecStaleNonce ExecCode = "stale_nonce"

	// Not authorised, each for its own reason.
	ExecNoMembership    ExecCode = "no_membership"    // none, or none that the mesh's hub signed
	ExecMembershipOver  ExecCode = "membership_over"  // it has expired
	ExecWrongPeer       ExecCode = "wrong_peer"       // membership or request are another peer's than the one that talks
	ExecRevoked         ExecCode = "revoked"          // the membership was ended
	ExecNotMember       ExecCode = "not_a_member"     // not of that scope
	ExecMayNotSubmit    ExecCode = "may_not_submit"   // the membership does not grant submit
	ExecWrongExecutor   ExecCode = "wrong_executor"   // signed for another executor
	ExecExpired         ExecCode = "expired"          // the request's time is over, or too far ahead
	ExecReplayed        ExecCode = "replayed"         // the nonce was seen before
	ExecBadSignature    ExecCode = "bad_signature"    // of the request
	ExecNoChain         ExecCode = "no_chain"         // no head that the mesh's hub signed, or not the body that it names
	ExecChainOver       ExecCode = "chain_expired"    // the chain has expired
	ExecForeignChain    ExecCode = "foreign_chain"    // of another scope or primitive than the request
	ExecBadExtension    ExecCode = "bad_extension"    // it does not hold for this chain
	ExecNoSlot          ExecCode = "no_slot"          // the chain has no such peer slot, or it does not admit this executor
	ExecLacksCapability ExecCode = "lacks_capability" // the slot requires what the executor does not have
	ExecNothingToRun    ExecCode = "nothing_to_run"   // its own chain has no option that it may use for others
	ExecTooLarge        ExecCode = "too_large"        // the payload is over its limit
	ExecPayloadMismatch ExecCode = "payload_mismatch" // the payload is not the one that was signed
	ExecProtocol        ExecCode = "protocol"         // broken frame or message
	ExecInternal        ExecCode = "internal"         // it failed; its log says why

	// Its gate says no; the codes are the gate's own.
	ExecTokenMissing   ExecCode = "token_missing"
	ExecInvalidToken   ExecCode = "invalid_token"           // also one that is bound to another peer, or came with that nonce before
	ExecTokenAudience  ExecCode = "token_audience_mismatch" // it is for another executor
	ExecAgentSuspended ExecCode = "agent_suspended"         // the executor is
	ExecNoAgent        ExecCode = "no_agent"                // the registry does not list the executor for that work
	ExecNoSnapshot     ExecCode = "no_snapshot"             // it does not know how it stands
	ExecSnapshotStale  ExecCode = "snapshot_stale"
	ExecNoKeys         ExecCode = "upstream_error" // it does not know the trust server's keys
)

// Gate reports whether c is a gate's.
func (c ExecCode) Gate() bool {
	switch c {
	case ExecTokenMissing, ExecInvalidToken, ExecTokenAudience, ExecAgentSuspended, ExecNoAgent, ExecNoSnapshot, ExecSnapshotStale, ExecNoKeys:
		return true
	}
	return false
}

// ExecRefusal is an executor's no, said before anything ran. It is an error;
// errors.Is(err, &ExecRefusal{Code: ExecBusy}) asks for the code.
type ExecRefusal struct {
	Code     ExecCode     `cbor:"code"`
	Message  string       `cbor:"message,omitempty"`   // one line for people, without content
	ComeBack chain.Millis `cbor:"come_back,omitempty"` // not before; 0: unknown
	Boot     string       `cbor:"boot,omitempty"`      // of ExecStaleNonce: what a nonce has to begin with
}

// Question reports whether an executor refused for want of something that whoever
// asks gives it at once. It is no refusal of the work.
func (r *ExecRefusal) Question() bool { return r.Code == ExecNeed || r.Code == ExecStaleNonce }

// RefuseExec makes an ExecRefusal.
func RefuseExec(code ExecCode, format string, args ...any) *ExecRefusal {
	return &ExecRefusal{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Error implements error.
func (r *ExecRefusal) Error() string {
	if r.Message == "" {
		return "the executor refused: " + string(r.Code)
	}
	return "the executor refused: " + r.Message + " (" + string(r.Code) + ")"
}

// Is reports whether target is an ExecRefusal with the same code.
func (r *ExecRefusal) Is(target error) bool {
	t, ok := target.(*ExecRefusal)
	return ok && t.Code == r.Code
}
