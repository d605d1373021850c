package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/chordwheel/chordwheel/daemon"
	"github.com/chordwheel/chordwheel/store"
	"github.com/chordwheel/chordwheel/store/datadir"
)

// checkStoreVerb names the hidden command that examines a database in a process
// of its own: a damaged one can kill whoever looks.
const checkStoreVerb = "check-store"

// openStore opens the database in dir. After a run that did not close it, this
// program's own hidden verb looks at it first.
func openStore(dir *datadir.Dir, log *slog.Logger) (*store.Store, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the own program, which checks a damaged database: %w", err)
	}
	return store.Open(dir, store.Options{Log: log, Check: store.CheckIn(program, checkStoreVerb)})
}

// checkStore is the hidden verb that store.CheckIn runs.
func (a *app) checkStore() *cobra.Command {
	return &cobra.Command{Use: checkStoreVerb + " FILE", Hidden: true, Args: cobra.ExactArgs(1), RunE: func(_ *cobra.Command, args []string) error {
		if code := store.CheckMain(args[0]); code != 0 {
			return &exit{code, errors.New("the database is not in order")}
		}
		return nil
	}}
}

// openStored opens what the data directory keeps, the directory aside.
func (d *device) openStored(c *daemon.Config) (err error) {
	o := d.options
	c.State = d.dir
	marks, err := d.dir.Marks()
	if err != nil {
		return err
	}
	if d.db, err = openStore(d.dir, o.log); err != nil {
		return err
	}
	c.Jobs, c.Provided, c.Speeds = d.db.Bucket("jobs"), d.db.Bucket("providers"), d.db.Bucket("speeds")
	c.Marks = marks
	if c.Chains, err = d.openChains(marks); err != nil {
		return err
	}
	d.ring, err = openRing(o.dir, o.config, o.environ, o.log)
	c.Keys = keys{d.ring}
	return err
}

func (d *device) openChains(marks *datadir.Marks) (*store.ChainCache, error) {
	chains := store.NewChainCache(d.db, marks)
	joined, ok, err := daemon.LoadJoined(d.dir)
	if errors.Is(err, datadir.ErrDamaged) {
		return nil, fmt.Errorf("%w: move it and its .bak away, and join again", err)
	}
	if err != nil || !ok {
		return chains, err
	}
	for _, refusal := range chains.Load(joined.Trust, time.Now()) {
		d.log.Warn("a stored chain is not in force", "error", refusal)
	}
	return chains, nil
}
