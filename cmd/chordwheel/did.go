package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/did"
	"github.com/chordwheel/chordwheel/did/fetch"
	"github.com/chordwheel/chordwheel/did/shelf"
	"github.com/chordwheel/chordwheel/store/datadir"
)

// Names in a data directory; docs/identity.md tells what is in them.
const (
	didFolder  = "did"           // logs, as they are served
	didName    = "did-name"      // what this node goes by
	didKeysExt = ".did-keys"     // behind the SCID: keys that sign the log's entries
	didLock    = "did.lock"      // held by who changes any of these
	resolving  = 1 * time.Minute // at most
)

// identities are what a data directory knows of names.
type identities struct {
	dir   string
	shelf *shelf.Shelf
}

func identitiesIn(dir string) identities {
	return identities{dir, shelf.New(filepath.Join(dir, didFolder), datadir.WritePrivate)}
}

// alone calls f while no other command changes a name of this node: of two that extend
// one log, the keys that the one commits to would be overwritten by the other's, and
// nobody could extend it again.
func (i identities) alone(f func() error) error {
	return datadir.Alone(filepath.Join(i.dir, didLock), f)
}

// key reads the node's own key, also while the node runs.
func (i identities) key() (chain.Key, error) {
	b, err := datadir.Peek(i.dir, datadir.IdentityFile)
	if err != nil {
		return chain.Key{}, err
	}
	return chain.ParseKey(b)
}

// name gives the did:webvh that the node goes by, "" for none.
func (i identities) name() (string, error) {
	b, err := os.ReadFile(filepath.Join(i.dir, didName))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(b)), err
}

// signer gives the DID that the node's receipts are signed as, if that is not its
// did:key. A log that lies here has to list the key: others could verify nothing.
func (i identities) signer(key chain.Key, now time.Time) (string, error) {
	name, err := i.name()
	if err != nil || name == "" {
		return "", err
	}
	log, err := i.shelf.Get(name)
	if errors.Is(err, did.ErrNotFound) { // it is served elsewhere; `did use` looked at it
		return name, nil
	}
	if err != nil {
		return "", err
	}
	r, err := did.Verify(log, nil, name, did.Want{}, now)
	if err == nil {
		err = lists(r, key)
	}
	if err != nil {
		return "", fmt.Errorf("%w; chordwheel did use %s goes back to the key's own name", err, key.DID())
	}
	return name, nil
}

// lists fails unless a document lists a key for receipts.
func lists(r did.Resolution, key chain.Key) error {
	public, err := key.PeerID().Public()
	switch {
	case err != nil:
		return err
	case r.Deactivated:
		return fmt.Errorf("%s was deactivated", r.DID)
	case !slices.ContainsFunc(r.Keys(did.Assertion), func(k ed25519.PublicKey) bool { return k.Equal(public) }):
		return fmt.Errorf("%s does not list the key of this node, %s", r.DID, key.DID())
	}
	return nil
}

// did is `chordwheel did`.
func (a *app) did() *cobra.Command {
	c := &cobra.Command{
		Use: "did", Short: "Make, change and look at the names of signers",
		Long: `A node signs as its did:key, which is its key, unless it goes by a did:webvh: a
name at a web address that stays the same when keys change. docs/identity.md
tells how such a name is served.`,
		Example: "  chordwheel did show\n  chordwheel did create example.com\n  chordwheel did resolve did:webvh:SCID:example.com",
		Args:    verb, RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	d := &didCommand{app: a}
	c.PersistentFlags().BoolVar(&d.hub, "hub", false, "of the hub, where device and hub are on this machine")
	c.AddCommand(d.show(), d.create(), d.rotate(), d.update(), d.deactivate(), d.export(), d.use(), d.resolve())
	return c
}

// didCommand is one run of `did`.
type didCommand struct {
	*app
	hub  bool
	keys string
}

// node is whose names are meant.
func (d *didCommand) node() (identities, chain.Key, error) {
	devices, err := d.deviceDirs()
	if err != nil {
		return identities{}, chain.Key{}, err
	}
	hubs, err := d.hubDirs()
	if err != nil {
		return identities{}, chain.Key{}, err
	}
	dirs := slices.Concat(devices, hubs)
	if d.hub {
		dirs = hubs
	}
	dir, err := existing(dirs)
	if err != nil {
		return identities{}, chain.Key{}, err
	}
	i := identitiesIn(dir)
	key, err := i.key()
	return i, key, err
}

// nextStart is what is left to do where a node goes by another name.
const nextStart = "receipts are signed as it when this node starts again"

// shown is what these commands print.
type shown struct {
	Key     string `json:"key"` // the node's did:key
	DID     string `json:"did,omitempty"`
	Version string `json:"version,omitempty"`
	Address string `json:"address,omitempty"` // where the log has to be served
	Log     string `json:"log,omitempty"`     // where it lies
	Keys    string `json:"keys,omitempty"`    // where the keys of its entries lie
	Ended   bool   `json:"deactivated,omitempty"`
	Next    string `json:"next,omitempty"` // what is left to do
}

func (d *didCommand) print(s shown) error {
	return d.app.print(s, func(w io.Writer) {
		fmt.Fprintln(w, "key     ", s.Key)
		for _, line := range [][2]string{{"did     ", s.DID}, {"version ", s.Version}, {"address ", s.Address}, {"log     ", s.Log}, {"keys    ", s.Keys}, {"next    ", s.Next}} {
			if line[1] != "" {
				fmt.Fprintln(w, line[0], line[1])
			}
		}
		if s.Ended {
			fmt.Fprintln(w, d.paint(yellow, "it was deactivated"))
		}
	})
}

func (d *didCommand) show() *cobra.Command {
	return &cobra.Command{Use: "show", Short: "Show the names that this node has", Example: "  chordwheel did show --json", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error {
		i, key, err := d.node()
		if err != nil {
			return err
		}
		s := shown{Key: key.DID()}
		if s.DID, err = i.name(); err != nil || s.DID == "" {
			return errors.Join(err, d.print(s))
		}
		if log, err := i.shelf.Get(s.DID); err == nil {
			if s, err = i.describe(key, s.DID, log); err != nil {
				return err
			}
		}
		return d.print(s)
	}}
}

// describe tells of a log that lies here.
func (i identities) describe(key chain.Key, name string, log []byte) (s shown, err error) {
	r, err := did.Verify(log, nil, name, did.Want{}, time.Now())
	if err != nil {
		return s, err
	}
	s = shown{Key: key.DID(), DID: r.DID, Version: r.VersionID, Ended: r.Deactivated}
	if s.Address, err = did.Address(r.DID); err != nil {
		return s, err
	}
	s.Log, err = i.shelf.Path(r.DID)
	return s, err
}

func (d *didCommand) use() *cobra.Command {
	return &cobra.Command{
		Use: "use DID [LOGFILE]", Short: "Sign receipts as this DID from the next start on",
		Long: `Sign receipts as a did:webvh that lists this node's key, from the next start on. It is
resolved now, or checked against a LOGFILE, which is kept. The node's did:key goes
back to the key's own name.`,
		Example: "  chordwheel did use did:webvh:SCID:example.com", Args: cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			if err := did.Check(args[0]); err != nil {
				return usage("%w", err)
			}
			i, key, err := d.node()
			if err != nil {
				return err
			}
			file := filepath.Join(i.dir, didName)
			if args[0] == key.DID() {
				if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return err
				}
				return d.print(shown{Key: key.DID(), Next: nextStart})
			}
			var r did.Resolution
			var log []byte
			if len(args) == 2 {
				if log, err = os.ReadFile(args[1]); err != nil {
					return err
				}
				r, err = did.Verify(log, nil, args[0], did.Want{}, time.Now())
			} else {
				r, err = d.look(c.Context(), i, args[0])
			}
			if err != nil {
				return err
			}
			if err := lists(r, key); err != nil {
				return err
			}
			err = i.alone(func() error {
				if log != nil {
					if err := i.grown(r.DID, log); err != nil {
						return err
					}
					if err := i.shelf.Put(r.DID, log); err != nil {
						return err
					}
				}
				return datadir.WritePrivate(file, []byte(r.DID+"\n"))
			})
			if err != nil {
				return err
			}
			return d.print(shown{Key: key.DID(), DID: r.DID, Version: r.VersionID, Next: nextStart})
		},
	}
}

// grown fails unless a log is what the one that lies here for the DID grew to.
func (i identities) grown(name string, log []byte) error {
	kept, err := i.shelf.Get(name)
	if errors.Is(err, did.ErrNotFound) || err == nil && bytes.HasPrefix(log, bytes.TrimRight(kept, "\n")) {
		return nil
	}
	path, _ := i.shelf.Path(name)
	if err != nil {
		return fmt.Errorf("the log that lies here, %s: %w; move it away to replace it", path, err)
	}
	return fmt.Errorf("the log that lies here, %s, is newer or of another name: move it away to replace it", path)
}

func (d *didCommand) look(ctx context.Context, i identities, name string) (did.Resolution, error) {
	ctx, cancel := context.WithTimeout(ctx, resolving)
	defer cancel()
	return did.Resolve(ctx, i.shelf.Before(fetch.New(fetch.Options{})), name, did.Want{}, time.Now())
}

func (d *didCommand) resolve() *cobra.Command {
	return &cobra.Command{
		Use: "resolve DID [LOGFILE]", Short: "Show what a did:key or did:webvh stands for", Args: cobra.RangeArgs(1, 2),
		Long: `Show what a did:key or did:webvh stands for. Of a did:webvh an earlier version is
shown for ?versionId=, ?versionNumber= or ?versionTime= behind it. With a LOGFILE nothing
is fetched: the log is that, and the approvals of its witnesses lie beside it.`,
		Example: "  chordwheel did resolve did:webvh:SCID:example.com\n  chordwheel did resolve 'did:webvh:SCID:example.com?versionNumber=1' did.jsonl --json",
		RunE: func(c *cobra.Command, args []string) error {
			name, want, err := did.ParseURL(args[0])
			if err == nil {
				err = did.Check(name)
			}
			if err != nil {
				return usage("%w", err)
			}
			ctx, cancel := context.WithTimeout(c.Context(), resolving)
			defer cancel()
			from := did.Fetcher(fetch.New(fetch.Options{}))
			if len(args) == 2 {
				from = beside(args[1])
			}
			r, err := did.Resolve(ctx, from, name, want, time.Now())
			if err != nil {
				return err
			}
			return d.app.print(r, func(w io.Writer) {
				fmt.Fprintln(w, r.DID)
				if r.VersionID != "" {
					fmt.Fprintln(w, "  version", r.VersionID, "of", r.VersionTime.Format(time.RFC3339))
				}
				for _, k := range r.Keys(did.Assertion) {
					fmt.Fprintln(w, "  signs with", chain.DIDKey(k))
				}
				if r.Deactivated {
					fmt.Fprintln(w, d.paint(yellow, "  it was deactivated"))
				}
			})
		}}
}

// beside gives a log that lies in a file for whatever address, and its approvals from beside it.
type beside string

// Fetch implements [did.Fetcher].
func (b beside) Fetch(_ context.Context, url string, limit int64) ([]byte, error) {
	name := string(b)
	if strings.HasSuffix(url, "/"+did.WitnessFile) {
		name = filepath.Join(filepath.Dir(name), did.WitnessFile)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit+1)) // one too many is refused as too large
}

func (d *didCommand) export() *cobra.Command {
	return &cobra.Command{
		Use: "export DIRECTORY", Short: "Write the log as a static web server wants it", Args: cobra.ExactArgs(1),
		Long: `Write the log of this node's did:webvh below DIRECTORY, which is the root of the web
server that has the DID's host: .well-known/did.jsonl, or where its path says.`,
		Example: "  chordwheel did export /var/www/html",
		RunE: func(_ *cobra.Command, args []string) error {
			i, key, err := d.node()
			if err != nil {
				return err
			}
			name, log, err := i.own()
			if err != nil {
				return err
			}
			s, err := i.describe(key, name, log)
			if err != nil {
				return err
			}
			_, path, _ := strings.Cut(strings.TrimPrefix(s.Address, "https://"), "/")
			s.Log = filepath.Join(args[0], filepath.FromSlash(path))
			if err := os.MkdirAll(filepath.Dir(s.Log), 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(s.Log, log, 0o644); err != nil { // for a web server to read
				return err
			}
			return d.print(s)
		},
	}
}

// own gives the did:webvh of the node whose log lies here.
func (i identities) own() (name string, log []byte, err error) {
	if name, err = i.name(); err != nil {
		return "", nil, err
	}
	if name == "" {
		return "", nil, errors.New("this node goes by its key alone; chordwheel did create example.com makes a name")
	}
	log, err = i.shelf.Get(name)
	return name, log, err
}
