package testnet

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon"
)

// Check fails the test if anything that must always hold does not, or did not since the
// last Check. The numbers are those of the README. It is cheap enough for every step.
func (n *Net) Check() {
	n.t.Helper()
	synctest.Wait() // else a file that is being replaced is there and gone while it is looked for
	n.checkChains()
	n.checkHub()
	n.checkTraces()
	n.checkReceipts()
	n.watch.mu.Lock()
	broken := n.watch.broken
	n.watch.broken = nil
	n.watch.mu.Unlock()
	for _, b := range broken {
		n.t.Error(b)
	}
	if len(broken) > 0 {
		n.t.FailNow()
	}
}

// checkChains: what devices hold is what the hub signed, for a scope that they are in,
// never older than before, with the prices that were declared.
func (n *Net) checkChains() {
	for _, d := range n.devices {
		if !d.Runs() {
			continue
		}
		joined, ok, err := daemon.LoadJoined(d.data)
		if err != nil {
			n.watch.breach(2, "%s cannot read what it joined: %v", d.Name, err)
			continue
		}
		for _, c := range d.chains.All() {
			n.watch.holds(d, c)
			scope := false
			for _, s := range joined.Scopes {
				scope = scope || c.Slot().Scope.Base() == s
			}
			if !ok || !scope {
				n.watch.breach(2, "%s holds a chain of %s, which it is not in", d.Name, c.Slot().Scope)
			}
			n.checkPrices(d, c)
		}
		for slot, m := range d.marks.All() {
			n.watch.mark(d, slot, m)
		}
	}
}

func (n *Net) checkPrices(d *Device, c *chain.Chain) {
	for _, o := range c.Options() {
		for _, p := range n.hub.catalogue.Providers {
			for _, m := range p.Models {
				if string(o.ID) == p.Name+"/"+m.Name && (o.Cost.InputPerMtok != m.Price.InputPerMtok || o.Cost.OutputPerMtok != m.Price.OutputPerMtok) &&
					c.Head().Issued.Time().After(n.hub.declared) {
					n.watch.breach(4, "%s is told other prices of %s than were declared", d.Name, o.ID)
				}
			}
		}
	}
}

// checkHub: it never dialled, and what passed stands in its operations log.
func (n *Net) checkHub() {
	if n.hub.Hub == nil {
		return
	}
	if asked := n.hub.node.DialsAsked(); asked != 0 {
		n.watch.breach(3, "the hub was about to dial %d times", asked)
	}
	logged := map[chain.PeerID]map[string]int{}
	operations := n.hub.Operations(0, 1<<20)
	for _, op := range operations {
		kind := op.Kind
		if kind == "enrol" {
			kind = "hello"
		}
		if logged[op.Peer] == nil {
			logged[op.Peer] = map[string]int{}
		}
		logged[op.Peer][kind]++
	}
	if len(operations) > 0 && operations[0].ID > 1 {
		return // the ring was overrun: the oldest are gone
	}
	n.watch.mu.Lock()
	lives, done := n.watch.lives, n.watch.done
	var missing []string
	if lives == n.hub.lives {
		for _, d := range n.devices {
			for kind, times := range done[d.Name] {
				if logged[d.Peer][kind] < times {
					missing = append(missing, d.Name+"'s "+kind)
				}
			}
		}
	}
	n.watch.mu.Unlock()
	for _, m := range missing {
		n.watch.breach(9, "the operations log lacks %s", m)
	}
}

// checkTraces: no prompt, answer or key in any file or log line.
func (n *Net) checkTraces() {
	marks := []string{promptCanary, answerCanary, keyCanary}
	look := func(where string, b []byte) {
		for _, mark := range marks {
			if bytes.Contains(b, []byte(mark)) {
				n.watch.breach(6, "%q in %s", mark, where)
			}
		}
	}
	text, end := n.logs.since(n.watch.logsRead)
	n.watch.logsRead = end
	look("a log", text)
	err := fs.WalkDir(os.DirFS(n.dir), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || strings.HasSuffix(path, ".lock") {
			return err
		}
		b, err := fs.ReadFile(os.DirFS(n.dir), path)
		look(path, b)
		return err
	})
	if err != nil {
		n.t.Error(err)
	}
}

// checkReceipts: every answer has one on the disk, its own device's. A crash may have taken
// those that were not there yet, as many as the start after it counted.
func (n *Net) checkReceipts() {
	for _, d := range n.devices {
		if !d.Runs() {
			continue
		}
		owed := func() int { d.mu.Lock(); defer d.mu.Unlock(); return d.finished - d.lost }
		for end := time.Now().Add(5 * time.Second); d.receipts() < owed() && time.Now().Before(end); {
			time.Sleep(50 * time.Millisecond) // an answer does not wait for its receipt
		}
		if have, owed := d.receipts(), owed(); have < owed {
			n.watch.breach(7, "%s has %d receipts and owes %d", d.Name, have, owed)
		}
	}
}

// receipts counts the receipts of d's own requests in its spool.
func (d *Device) receipts() int {
	files, err := filepath.Glob(filepath.Join(d.dir, "spool*.jsonl"))
	if err != nil {
		d.net.t.Fatal(err)
	}
	own, count := []byte(`"seeker_did":"`+d.Peer.DID()+`"`), 0
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			d.net.t.Fatal(err)
		}
		count += bytes.Count(b, own)
	}
	return count
}
