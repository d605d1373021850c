package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

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
