package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/control"
	"github.com/chordwheel/chordwheel/store/datadir"
	"github.com/chordwheel/chordwheel/store/keyring"
)

func (a *app) keys() *cobra.Command {
	c := &cobra.Command{
		Use:   "keys",
		Short: "Keep the keys of paid services on this device",
		Long: `Keys are named in the catalogue and kept on the device: in the environment as
CHORDWHEEL_KEY_<NAME>, or in a file that only you can read. They never leave the
device. A running daemon takes changes over by itself.`,
		Example: "  chordwheel keys set groq < groq.key\n  chordwheel keys list",
		Args:    verb,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(
		&cobra.Command{Use: "list", Short: "List the names of the keys, never their values", Example: "  chordwheel keys list --json", Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error {
			return a.keysList(c.Context())
		}},
		&cobra.Command{Use: "set NAME", Short: "Set a key from standard input", Example: "  chordwheel keys set groq < groq.key", Args: cobra.ExactArgs(1), RunE: func(c *cobra.Command, args []string) error {
			return a.keysSet(c.Context(), args[0])
		}},
		&cobra.Command{Use: "rm NAME", Short: "Forget a key", Example: "  chordwheel keys rm groq", Args: cobra.ExactArgs(1), RunE: func(_ *cobra.Command, args []string) error {
			ring, err := a.ring()
			if err != nil {
				return err
			}
			return ring.Remove(args[0])
		}},
		a.keysTest(),
	)
	return c
}

// keysList shows the keys of the running device, whose environment counts;
// without one, those of the ring.
func (a *app) keysList(ctx context.Context) error {
	ring, err := a.ring()
	if err != nil {
		return err
	}
	if err := ring.Problem(); err != nil { // the environment's keys work all the same
		fmt.Fprintln(a.err, a.paint(yellow, "! "+err.Error()))
	}
	all, err := a.runningKeys(ctx)
	if err != nil {
		all = []control.Key{}
		for _, k := range ring.Names() {
			all = append(all, control.Key{Name: k.Name, Source: string(k.Source)})
		}
	}
	return a.print(map[string][]control.Key{"keys": all}, func(w io.Writer) {
		var lines [][]string
		for _, k := range all {
			lines = append(lines, []string{k.Name, k.Source})
		}
		a.rows(w, []string{"name", "kept in"}, lines)
		if len(lines) == 0 {
			fmt.Fprintln(w, "there are no keys; set one with: chordwheel keys set NAME")
		}
	})
}

// runningKeys gives the keys of the running device.
func (a *app) runningKeys(ctx context.Context) ([]control.Key, error) {
	n, err := a.device(ctx)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Keys []control.Key `json:"keys"`
	}
	return answer.Keys, n.get(ctx, "/api/v1/keys", &answer)
}

func (a *app) keysSet(ctx context.Context, name string) error {
	ring, err := a.ring()
	if err != nil {
		return err
	}
	if err := keyring.CheckName(name); err != nil {
		return usage("%w", err)
	}
	secret, err := a.secret("key " + name)
	if err != nil {
		return err
	}
	if err := ring.Set(name, secret); err != nil {
		return err
	}
	if running, err := a.runningKeys(ctx); err == nil && slices.Contains(running, control.Key{Name: name, Source: string(keyring.Environment)}) {
		fmt.Fprintln(a.err, a.paint(yellow, "! the running device has this key in its environment too, and that one counts until it is started without it"))
	}
	return a.print(map[string]string{"stored": name}, func(w io.Writer) { fmt.Fprintf(w, "key %s is stored\n", name) })
}

// ring opens the key ring of the device that the command means. It needs no
// running daemon and takes no lock on the directory.
func (a *app) ring() (*keyring.Ring, error) {
	dir, err := a.deviceDir()
	if err != nil {
		return nil, err
	}
	config := defaultDevice(0, "127.0.0.1")
	if err := load(&config, dir, a.environ); err != nil {
		return nil, err
	}
	return openRing(dir, config, a.environ, nil)
}

// secret reads one line from standard input, without echo on a terminal.
func (a *app) secret(what string) (chain.Secret, error) {
	if f, ok := a.in.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		fmt.Fprintf(a.err, "%s: ", what)
		b, err := term.ReadPassword(int(f.Fd()))
		fmt.Fprintln(a.err)
		if err != nil {
			return "", fmt.Errorf("read the %s: %w", what, err)
		}
		return nonEmpty(string(b), what)
	}
	b, err := io.ReadAll(io.LimitReader(a.in, keyring.MaxSecretBytes+2))
	if err != nil {
		return "", fmt.Errorf("read the %s: %w", what, err)
	}
	return nonEmpty(string(b), what)
}

func nonEmpty(text, what string) (chain.Secret, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return "", usage("the %s is empty; give it on standard input", what)
	}
	return chain.Secret(text), nil
}

// edgeKeyFile holds the edge's bearer key where none was configured.
const edgeKeyFile = "edge.key"

// adminTokenFile holds the token of the admin listener where none was configured.
const adminTokenFile = "admin.token"

func (a *app) key() *cobra.Command {
	return &cobra.Command{
		Use:     "key",
		Short:   "Print the bearer key of the edge",
		Example: `  curl -H "Authorization: Bearer $(chordwheel key)" http://127.0.0.1:7420/v1/models`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			dir, err := a.deviceDir()
			if err != nil {
				return err
			}
			key, err := readEdgeKey(dir)
			if err != nil {
				return err
			}
			if key == "" {
				return fmt.Errorf("the device in %s has no key of its own: its edge takes ORCH_API_KEY, or any caller on this machine", dir)
			}
			return a.print(map[string]string{"key": key.Reveal()}, func(w io.Writer) { fmt.Fprintln(w, key.Reveal()) })
		},
	}
}

// readEdgeKey gives the key in dir, "" if none was made.
func readEdgeKey(dir string) (chain.Secret, error) {
	return readSecret(dir, edgeKeyFile, "the edge's key")
}

// readSecret gives a secret that was made and kept in a file of dir, "" if none was.
func readSecret(dir, file, what string) (chain.Secret, error) {
	b, err := datadir.ReadPrivate(filepath.Join(dir, file), 1<<10)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read %s: %w", what, err)
	}
	key := strings.TrimSpace(string(b))
	if key == "" {
		return "", fmt.Errorf("%s in %s is empty: put it back, or remove the file", what, filepath.Join(dir, file))
	}
	return chain.Secret(key), nil
}

// makeSecret makes one and keeps it.
func makeSecret(dir *datadir.Dir, file, prefix, what string) (chain.Secret, error) {
	var b [24]byte
	_, _ = rand.Read(b[:]) // it never fails
	text := prefix + base64.RawURLEncoding.EncodeToString(b[:])
	if err := datadir.WritePrivate(dir.Path(file), []byte(text+"\n")); err != nil {
		return "", fmt.Errorf("keep %s: %w", what, err)
	}
	return chain.Secret(text), nil
}
