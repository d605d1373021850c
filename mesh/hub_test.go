package mesh_test

import (
	"errors"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/mesh/spoke"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

func TestDevicesJoinFetchAndHear(t *testing.T) {
	run(t, 3, func(t *testing.T, w *world) {
		w.invalidate(1)
		w.within(time.Second, "all hear it", w.all(func(r *rim) bool { return last(r.seqs(), 1) }))
		for _, r := range w.devices {
			reply, err := r.Fetch(t.Context(), wire.Fetch{Slot: home})
			if err != nil || len(reply.Body) != 300_000 {
				t.Errorf("fetch: %d bytes, %v", len(reply.Body), err)
			}
			_, err = r.Fetch(t.Context(), wire.Fetch{Slot: scoped("workspace:other")})
			if !errors.Is(err, &spoke.Refusal{Code: spoke.CodeNoChain}) {
				t.Errorf("fetch of nothing: %v", err)
			}
			if !r.HubReachable() {
				t.Error("hub is not reachable")
			}
		}
		if n := w.hub.DialsAsked(); n != 0 {
			t.Errorf("the hub was asked to dial %d times", n)
		}
	})
}
