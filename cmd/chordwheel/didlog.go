package main

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/did"
	"github.com/chordwheel/chordwheel/orchestrator/authority"
	"github.com/chordwheel/chordwheel/store/datadir"
)

// updateKeys are the seeds of the keys that sign a log's entries, the oldest first: the last
// one is what the newest entry commits to. After a crash the one before may be.
type updateKeys struct {
	DID   string   `json:"did"`
	Seeds [][]byte `json:"seeds"`
}

// keptSeeds is how many are kept: those of the last entry and the next, and those of changes that a
// crash cut off.
const keptSeeds = 16

// keysFile is where the keys of a DID lie unless --keys says otherwise.
func (d *didCommand) keysFile(i identities, name string) string {
	if d.keys != "" {
		return d.keys
	}
	scid, _, _ := strings.Cut(strings.TrimPrefix(name, "did:webvh:"), ":")
	return filepath.Join(i.dir, scid+didKeysExt)
}

func readUpdateKeys(file string) (k updateKeys, err error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return k, fmt.Errorf("the keys of the log are not in %s: name their file with --keys", file)
	}
	if err != nil {
		return k, err
	}
	if json.Unmarshal(b, &k) != nil || len(k.Seeds) == 0 {
		return k, fmt.Errorf("%s holds no keys of a DID's log", file)
	}
	for _, seed := range k.Seeds {
		if len(seed) != ed25519.SeedSize {
			return k, fmt.Errorf("%s holds no keys of a DID's log", file)
		}
	}
	return k, nil
}

func (k *updateKeys) add() (ed25519.PrivateKey, error) {
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	k.Seeds = append(k.Seeds, private.Seed())
	return private, nil
}

// trim forgets the oldest seeds, but never that at index signer, however many
// changes failed since: until the log is written, it alone can sign the next entry.
func (k *updateKeys) trim(signer int) {
	k.Seeds = k.Seeds[max(0, min(signer, len(k.Seeds)-keptSeeds)):]
}

func (k *updateKeys) write(file string) error {
	b, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return datadir.WritePrivate(file, append(b, '\n'))
}

func (d *didCommand) keysFlag(c *cobra.Command) *cobra.Command {
	c.Flags().StringVar(&d.keys, "keys", "", "`FILE` with the keys that sign the log (default: in the data directory)")
	return c
}

// listedKey reads --key: the node's own unless it names another.
func listedKey(text string, own chain.Key) (ed25519.PublicKey, error) {
	if text == "" {
		return own.PeerID().Public()
	}
	key, err := chain.ParseDIDKey(text)
	if err != nil {
		return nil, usage("--key: %w", err)
	}
	return key, nil
}

func (d *didCommand) create() *cobra.Command {
	var key string
	var portable bool
	c := &cobra.Command{
		Use: "create HOST[:PORT][/PATH]", Short: "Make a did:webvh at a web address of yours",
		Long: `Make a did:webvh that lists this node's key, or with --key another's, for receipts and
for proofs of control. The node goes by it from its next start on, unless --key is
another's: there, chordwheel did use DID says so. The log has to be served at the
address that is printed: the hub does so on its authority listener for what is made
with --hub or copied into its did/, and chordwheel did export writes it for a web
server. Other keys sign the log, each committed to one entry ahead; keep their file
safe, and away from here if you can.`,
		Example: "  chordwheel did create example.com\n  chordwheel did create example.com/devices/laptop --hub --key did:key:z6Mk…\n  chordwheel did create example.com --keys /media/usb/did-keys",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			i, own, err := d.node()
			if err != nil {
				return err
			}
			public, err := listedKey(key, own)
			if err != nil {
				return err
			}
			place, err := did.Place(args[0])
			if err != nil {
				return usage("%w", err)
			}
			return i.alone(func() error { return d.begin(i, own, did.New{Place: place, Sign: public, Portable: portable}) })
		},
	}
	c.Flags().StringVar(&key, "key", "", "`DID` of the key to list, a did:key (default: this node's)")
	c.Flags().BoolVar(&portable, "portable", false, "let it move to another address later")
	return d.keysFlag(c)
}

// begin makes a new DID with its log. The node goes by it if the key that it lists
// is the node's own.
func (d *didCommand) begin(i identities, own chain.Key, n did.New) error {
	mine := chain.DIDKey(n.Sign) == own.DID()
	if name, err := i.name(); err != nil {
		return err
	} else if mine && name != "" {
		how := "already; chordwheel did deactivate ends it,"
		if log, err := i.shelf.Get(name); err == nil {
			if r, err := did.Verify(log, nil, name, did.Want{}, time.Now()); err == nil && r.Deactivated {
				how = "still, which was deactivated;"
			}
		}
		return fmt.Errorf("this node goes by %s %s chordwheel did use %s leaves it", name, how, own.DID())
	}
	var keys updateKeys
	first, err := keys.add()
	if err != nil {
		return err
	}
	next, err := keys.add()
	if err != nil {
		return err
	}
	n.Update, n.Next = first, []ed25519.PublicKey{next.Public().(ed25519.PublicKey)}
	name, log, err := did.Create(n, time.Now())
	if err != nil {
		return err
	}
	if err := i.vacant(name); err != nil {
		return err
	}
	keys.DID = name
	file := d.keysFile(i, name)
	if _, err := os.Lstat(file); err == nil {
		return fmt.Errorf("%s is there already: it may hold the keys of another DID", file)
	}
	if err := keys.write(file); err != nil { // before the log: nobody could change it
		return err
	}
	if err := i.shelf.Put(name, log); err != nil {
		return err
	}
	if mine {
		if err := datadir.WritePrivate(filepath.Join(i.dir, didName), []byte(name+"\n")); err != nil {
			return err
		}
	}
	left := "serve the log at the address (chordwheel did export DIRECTORY writes it for a web server), before receipts need it: the ledger takes none of a name that it does not find"
	_, err = os.Lstat(filepath.Join(i.dir, authority.CertificateFile))
	if err == nil { // of a hub, which signs no receipts
		left = "this hub serves the log on its authority listener; for others put a web server with a certificate of that host in front"
	}
	switch {
	case !mine:
		left += "; where that key is: chordwheel did use " + name + " LOGFILE"
	case err != nil:
		left += "; " + nextStart
	}
	return d.finish(i, own, name, log, file, left)
}

// vacant fails if a log lies where that of a new DID would: of one that is in force, or that cannot
// be read.
func (i identities) vacant(name string) error {
	log, err := i.shelf.Get(name)
	if errors.Is(err, did.ErrNotFound) {
		return nil
	}
	path, _ := i.shelf.Path(name)
	names := []string{}
	if err == nil {
		names, err = did.Names(log, time.Now())
	}
	if err != nil {
		return fmt.Errorf("%s is there already, and cannot be read: %w", path, err)
	}
	other := names[len(names)-1]
	if r, err := did.Verify(log, nil, other, did.Want{}, time.Now()); err == nil && r.Deactivated {
		return nil
	}
	return fmt.Errorf("the log of %s lies there already (%s): give another address, or end that name with chordwheel did deactivate", other, path)
}

func (d *didCommand) finish(i identities, own chain.Key, name string, log []byte, file, next string) error {
	s, err := i.describe(own, name, log)
	if err != nil {
		return err
	}
	s.Keys, s.Next = file, next
	return d.print(s)
}

// change writes one more entry. Args may name the DID; else it is the node's.
func (d *didCommand) change(args []string, c did.Change) error {
	i, own, err := d.node()
	if err != nil {
		return err
	}
	return i.alone(func() error { return d.changeAlone(i, own, args, c) })
}

func (d *didCommand) changeAlone(i identities, own chain.Key, args []string, c did.Change) error {
	name, log, err := "", []byte(nil), error(nil)
	if len(args) > 0 {
		name = args[0]
		log, err = i.shelf.Get(name)
	} else {
		name, log, err = i.own()
	}
	if err != nil {
		return err
	}
	file := d.keysFile(i, name)
	datadir.Sweep(file)
	keys, err := readUpdateKeys(file)
	if err != nil {
		return err
	}
	r, err := d.nextSecond(name, log)
	switch {
	case err != nil:
		return err
	case r.Deactivated:
		return fmt.Errorf("%s was deactivated: no entry can follow", r.DID)
	case c.Place != "" && !r.Portable:
		return fmt.Errorf("%s cannot move: only one that was made with --portable can", r.DID)
	}
	candidates := keys.Seeds
	if !c.Deactivate {
		next, err := keys.add()
		if err != nil {
			return err
		}
		c.Next = []ed25519.PublicKey{next.Public().(ed25519.PublicKey)}
	}
	var longer []byte
	at := len(candidates) - 1
	for ; at >= 0; at-- { // which one was committed to shows
		c.Update = ed25519.NewKeyFromSeed(candidates[at])
		if longer, err = did.Update(log, c, c.Update, time.Now()); err == nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("%w; the keys that were tried are those in %s", err, file)
	}
	keys.trim(at)
	if err := keys.write(file); err != nil { // before the log, which commits to the newest of them
		return err
	}
	if name, err = d.keep(i, name, longer); err != nil {
		return err
	}
	return d.finish(i, own, name, longer, file, i.left(own, name, longer))
}

// left says what is to be done after a change: the log is served as it was, and a node
// whose name does not list its key any more would not start.
func (i identities) left(own chain.Key, name string, log []byte) string {
	next := "serve the log anew at the address, where a web server has a copy of it"
	goesBy, err := i.name()
	if err != nil || goesBy != name {
		return next
	}
	r, err := did.Verify(log, nil, name, did.Want{}, time.Now())
	if err == nil && lists(r, own) != nil {
		next += "; before this node starts again: chordwheel did use " + own.DID()
	}
	return next
}

// nextSecond waits until an entry can follow what the log says: times in a log count in seconds, and no
// two entries have the same.
func (d *didCommand) nextSecond(name string, log []byte) (did.Resolution, error) {
	r, err := did.Verify(log, nil, name, did.Want{}, time.Now())
	if err != nil {
		return r, err
	}
	if wait := time.Until(r.Updated.Add(time.Second)); wait > 0 && wait <= 2*time.Second {
		time.Sleep(wait)
	}
	return r, nil
}

// keep puts a log that has grown where it is served: under the name that it has now, and
// under each that it had, for those who know an old one.
func (d *didCommand) keep(i identities, name string, log []byte) (string, error) {
	r, err := did.Verify(log, nil, name, did.Want{}, time.Now())
	if err != nil {
		return name, err
	}
	if err := i.shelf.Put(name, log); err != nil {
		return name, err
	}
	if r.DID != name {
		if err := i.shelf.Put(r.DID, log); err != nil {
			return name, err
		}
		goesBy, err := i.name()
		if err == nil && goesBy == name {
			err = datadir.WritePrivate(filepath.Join(i.dir, didName), []byte(r.DID+"\n"))
		}
		if err != nil {
			return r.DID, err
		}
	}
	return r.DID, i.follow(log, name, r.DID)
}

// follow puts a log where it lay under names that it had, but those of done. Who took it
// away there, or put another one there, is left alone.
func (i identities) follow(log []byte, done ...string) error {
	names, err := did.Names(log, time.Now())
	if err != nil {
		return err
	}
	for _, name := range names {
		if slices.Contains(done, name) {
			continue
		}
		if old, err := i.shelf.Get(name); err != nil {
			continue
		} else if _, err := did.Verify(old, nil, name, did.Want{}, time.Now()); err != nil {
			continue
		}
		if err := i.shelf.Put(name, log); err != nil {
			return err
		}
	}
	return nil
}

func (d *didCommand) rotate() *cobra.Command {
	return d.keysFlag(&cobra.Command{
		Use: "rotate [DID]", Short: "Change the keys that sign the log", Args: cobra.MaximumNArgs(1),
		Long: `Write an entry by the key that the one before committed to, which commits to a new
one. What the DID stands for stays.`,
		Example: "  chordwheel did rotate --keys /media/usb/did-keys",
		RunE:    func(_ *cobra.Command, args []string) error { return d.change(args, did.Change{}) },
	})
}

func (d *didCommand) update() *cobra.Command {
	var key, place string
	c := &cobra.Command{
		Use: "update [DID]", Short: "Change the key that a did:webvh lists, or its address", Args: cobra.MaximumNArgs(1),
		Example: "  chordwheel did update did:webvh:SCID:example.com:devices:laptop --key did:key:z6Mk…\n  chordwheel did update --place other.example",
		RunE: func(_ *cobra.Command, args []string) error {
			var c did.Change
			var err error
			if key == "" && place == "" {
				return usage("nothing changes: give --key or --place; chordwheel did rotate changes the keys of the log alone")
			}
			if key != "" {
				if c.Sign, err = listedKey(key, chain.Key{}); err != nil {
					return err
				}
			}
			if place != "" {
				if c.Place, err = did.Place(place); err != nil {
					return usage("%w", err)
				}
			}
			return d.change(args, c)
		},
	}
	c.Flags().StringVar(&key, "key", "", "`DID` of the key to list from now on, a did:key")
	c.Flags().StringVar(&place, "place", "", "`HOST[:PORT][/PATH]` that a portable DID moves to")
	return d.keysFlag(c)
}

func (d *didCommand) deactivate() *cobra.Command {
	var sure bool
	c := &cobra.Command{
		Use: "deactivate [DID]", Short: "End a did:webvh for good", Args: cobra.MaximumNArgs(1),
		Long: `End a did:webvh: nothing signed as it verifies any more, and no entry can follow. A node
that goes by it has to be told another name: chordwheel did use.`,
		Example: "  chordwheel did deactivate --yes",
		RunE: func(_ *cobra.Command, args []string) error {
			if !sure {
				return usage("this cannot be undone, and receipts signed as it verify no more: say --yes")
			}
			return d.change(args, did.Change{Deactivate: true})
		},
	}
	c.Flags().BoolVar(&sure, "yes", false, "it cannot be undone")
	return d.keysFlag(c)
}
