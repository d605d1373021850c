package mesh

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/metrics"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
)

// Traffic is what passed through the streams of one protocol since the start,
// in bytes. Handshakes and the framing of the transports are not in it.
type Traffic struct {
	In  int64 `json:"in"`
	Out int64 `json:"out"`
}

// meter counts bytes by protocol. The library's own counter starts a goroutine
// for the whole process that never ends, and computes rates nobody asks for.
type meter struct {
	protocols sync.Map // protocol.ID -> *count
}

type count struct{ in, out atomic.Int64 }

var _ metrics.Reporter = (*meter)(nil)

// maxProtocols bounds the map: a peer may name protocols of its own, though
// only negotiated ones get here.
const maxProtocols = 256

func (m *meter) of(p protocol.ID) *count {
	if c, ok := m.protocols.Load(p); ok {
		return c.(*count)
	}
	n := 0
	m.protocols.Range(func(any, any) bool { n++; return n < maxProtocols })
	if n >= maxProtocols {
		p = "other"
	}
	c, _ := m.protocols.LoadOrStore(p, new(count))
	return c.(*count)
}

func (m *meter) LogSentMessageStream(n int64, p protocol.ID, _ peer.ID) { m.of(p).out.Add(n) }
func (m *meter) LogRecvMessageStream(n int64, p protocol.ID, _ peer.ID) { m.of(p).in.Add(n) }

// traffic gives the totals by protocol.
func (m *meter) traffic() map[string]Traffic {
	all := map[string]Traffic{}
	m.protocols.Range(func(k, v any) bool {
		c := v.(*count)
		name := string(k.(protocol.ID))
		if name == "" {
			name = "negotiation"
		}
		all[name] = Traffic{In: c.in.Load(), Out: c.out.Load()}
		return true
	})
	return all
}

// The rest of the interface has nobody who asks.

func (m *meter) LogSentMessage(int64)                                  {}
func (m *meter) LogRecvMessage(int64)                                  {}
func (m *meter) GetBandwidthForPeer(peer.ID) (s metrics.Stats)         { return s }
func (m *meter) GetBandwidthTotals() (s metrics.Stats)                 { return s }
func (m *meter) GetBandwidthByPeer() map[peer.ID]metrics.Stats         { return nil }
func (m *meter) Reset()                                                {}
func (m *meter) TrimIdle(time.Time)                                    {}
func (m *meter) GetBandwidthByProtocol() map[protocol.ID]metrics.Stats { return nil }
func (m *meter) GetBandwidthForProtocol(protocol.ID) (s metrics.Stats) { return s }
