package wire

import "github.com/chordwheel/chordwheel/chain"

// Provider asks the hub to admit a provider that works for the device over HTTP, on
// the strength of an invitation that the provider brought. One use of it is spent.
// A second question with the same nonce, of the same device, gets the first answer.
type Provider struct {
	Invitation   Redeem             `cbor:"invitation"`
	Class        string             `cbor:"class"` // browser, server, agent; shown to the owner
	Capabilities []chain.Capability `cbor:"capabilities,omitempty"`
	Nonce        string             `cbor:"nonce"`
}

// ProviderReply is what the invitation grants. The device is a member of the scope.
type ProviderReply struct {
	Scope   chain.ScopeID `cbor:"scope"`
	Granted []string      `cbor:"granted"` // patterns: what the provider declares counts where one matches
}

// Validate implements [Message].
func (p *Provider) Validate() error {
	var c check
	c.size("secret", len(p.Invitation.Secret), 16, 64)
	c.scope(p.Invitation.Scope)
	c.word("class", p.Class, 16)
	c.size("capabilities", len(p.Capabilities), 0, maxProvided)
	c.capabilities(p.Capabilities)
	c.word("nonce", p.Nonce, 64)
	return c.err
}

// Validate implements [Message].
func (p *ProviderReply) Validate() error {
	var c check
	c.scope(p.Scope)
	c.size("granted", len(p.Granted), 1, maxProvided)
	for i := 0; i < len(p.Granted) && c.err == nil; i++ {
		c.word("a granted pattern", p.Granted[i], 128)
	}
	return c.err
}
