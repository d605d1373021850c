package mesh

import (
	"fmt"
	"strings"
	"testing"

	pb "github.com/libp2p/go-libp2p-pubsub/pb"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/chordwheel/chordwheel/chain"
)

func TestOnlyTopicsOfTheMeshAreTracked(t *testing.T) {
	f := newTopicFilter("m")
	hash := strings.Repeat("0a", 16)
	for topic, want := range map[string]bool{
		"/chordwheel/m/revoked":                                               true,
		"/chordwheel/m/policy/0":                                              true,
		"/chordwheel/m/policy/15":                                             true,
		"/chordwheel/m/policy/16":                                             false,
		"/chordwheel/m/policy/-1":                                             false,
		"/chordwheel/m/policy/007":                                            false,
		"/chordwheel/m/" + hash + "/announce":                                 true,
		"/chordwheel/m/" + hash + "/chords":                                   true,
		"/chordwheel/m/" + hash + "/secrets":                                  false,
		"/chordwheel/m/" + hash + "0/announce":                                false,
		"/chordwheel/m/" + strings.ToUpper(hash[:2]) + hash[2:] + "/announce": false,
		"/chordwheel/other/revoked":                                           false,
		"revoked":                                                             false,
		"":                                                                    false,
	} {
		if got := f.CanSubscribe(topic); got != want {
			t.Errorf("%s: %v", topic, got)
		}
	}
}

func TestTopicsOfANeighbourAreBounded(t *testing.T) {
	f := newTopicFilter("m")
	yes, no := true, false
	sub := func(on *bool, from, to int) (subs []*pb.RPC_SubOpts) {
		for i := from; i < to; i++ {
			topic := fmt.Sprintf("/chordwheel/m/%032x/announce", i)
			subs = append(subs, &pb.RPC_SubOpts{Subscribe: on, Topicid: &topic})
		}
		return subs
	}
	p := peer.ID("p")
	if got, err := f.FilterIncomingSubscriptions(p, sub(&yes, 0, topicsPerPeer)); err != nil || len(got) != topicsPerPeer {
		t.Fatalf("%d, %v", len(got), err)
	}
	if _, err := f.FilterIncomingSubscriptions(p, sub(&yes, 0, topicsPerPeer)); err != nil {
		t.Errorf("saying the same again: %v", err)
	}
	for i := range 10 {
		if _, err := f.FilterIncomingSubscriptions(p, sub(&yes, 1000+i, 1001+i)); err == nil {
			t.Fatal("one more was taken")
		}
	}
	if _, err := f.FilterIncomingSubscriptions(p, sub(&yes, 0, topicsPerPacket+1)); err == nil {
		t.Error("a packet with too many was taken")
	}
	if _, err := f.FilterIncomingSubscriptions(p, sub(&no, 0, 1)); err != nil {
		t.Error(err)
	}
	if _, err := f.FilterIncomingSubscriptions(p, sub(&yes, 2000, 2001)); err != nil {
		t.Errorf("after leaving one: %v", err)
	}
	if _, err := f.FilterIncomingSubscriptions("q", sub(&yes, 5000, 5001)); err != nil {
		t.Errorf("another neighbour: %v", err)
	}
	f.forget(p)
	if _, err := f.FilterIncomingSubscriptions(p, sub(&yes, 3000, 3100)); err != nil {
		t.Errorf("after it left and came back: %v", err)
	}
}

func TestFullTablesForgetAHalf(t *testing.T) {
	table := map[int]bool{}
	for i := range maxTracked + 1 {
		makeRoom(table)
		table[i] = true
	}
	if n := len(table); n != maxTracked/2+1 {
		t.Errorf("%d entries", n)
	}
}

func TestPrefixOfABody(t *testing.T) {
	a, b := Prefix(chain.CIDOf([]byte("a"))), Prefix(chain.CIDOf([]byte("b")))
	if len(a) != 8 || string(a) == string(b) || Prefix("") != nil {
		t.Errorf("%x %x %x", a, b, Prefix(""))
	}
}
