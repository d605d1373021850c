// Package shelf keeps logs of did:webvh in a folder, laid out as a web server would have
// them, serves them and finds them again. It owns that layout. It must not know what
// stands in a log, or who may change one.
//
// The log of did:webvh:SCID:HOST%3APORT:a:b is HOST%3APORT/a/b/did.jsonl, that of a host alone
// HOST/.well-known/did.jsonl. Approvals of witnesses lie beside it, in did-witness.json.
package shelf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	pathpkg "path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/did"
)

// Shelf is a folder of logs. Its methods may be called at once from several
// goroutines and processes, if write replaces files whole.
type Shelf struct {
	dir   string
	write func(path string, b []byte) error
}

var _ did.Fetcher = (*Shelf)(nil)

// New gives the shelf in dir, which need not exist yet. write replaces a file whole;
// package store/datadir has one. It may be nil where nothing is put.
func New(dir string, write func(path string, b []byte) error) *Shelf { return &Shelf{dir, write} }

// place gives the path of a file below the shelf by its address, "" for an address
// that cannot be.
func place(url string) string {
	host, path, ok := strings.Cut(strings.TrimPrefix(url, "https://"), "/")
	path = strings.Replace(host, ":", "%3A", 1) + "/" + path
	if !ok || !strings.HasPrefix(url, "https://") || !filepath.IsLocal(filepath.FromSlash(path)) || pathpkg.Clean(path) != path || strings.ContainsAny(path, "\\:\x00") {
		return ""
	}
	if name := path[strings.LastIndexByte(path, '/')+1:]; name != did.LogFile && name != did.WitnessFile {
		return ""
	}
	return path
}

// Path gives where the log of a DID lies, or would lie. Errors wrap did.ErrInvalid.
func (s *Shelf) Path(name string) (string, error) {
	url, err := did.Address(name)
	if err != nil {
		return "", err
	}
	at := place(url)
	if at == "" {
		return "", fmt.Errorf("%w: %s has no place on a disk", did.ErrInvalid, chain.Clip(name))
	}
	return filepath.Join(s.dir, filepath.FromSlash(at)), nil
}

// Put keeps the log of a DID.
func (s *Shelf) Put(name string, log []byte) error {
	path, err := s.Path(name)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("keep the log of %s: %w", chain.Clip(name), err)
	}
	return s.write(path, log)
}

// Get gives the log of a DID. Errors wrap did.ErrNotFound where there is none.
func (s *Shelf) Get(name string) ([]byte, error) {
	url, err := did.Address(name)
	if err != nil {
		return nil, err
	}
	return s.Fetch(context.Background(), url, did.MaxLog)
}

// Fetch implements [did.Fetcher] for what lies here.
func (s *Shelf) Fetch(_ context.Context, url string, limit int64) ([]byte, error) {
	at := place(url)
	if at == "" {
		return nil, fmt.Errorf("%q: %w", chain.Clip(url), did.ErrNotFound)
	}
	return s.read(at, limit)
}

// read opens nothing outside of the folder, whatever links lie in it.
func (s *Shelf) read(at string, limit int64) ([]byte, error) {
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return nil, missing(err)
	}
	defer root.Close()
	f, err := root.Open(filepath.FromSlash(at))
	if err != nil {
		return nil, missing(err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("more than %d bytes", limit)
	}
	if err != nil {
		return nil, fmt.Errorf("the log of a DID: %w", err)
	}
	return b, nil
}

func missing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("it is not kept here: %w", did.ErrNotFound)
	}
	return fmt.Errorf("the log of a DID: %w", err)
}

// Before asks the shelf first, and next for what does not lie here: who serves a log
// need not ask the network for it, and in a network of its own could not.
func (s *Shelf) Before(next did.Fetcher) did.Fetcher { return before{s, next} }

type before struct {
	shelf *Shelf
	next  did.Fetcher
}

func (b before) Fetch(ctx context.Context, url string, limit int64) ([]byte, error) {
	got, err := b.shelf.Fetch(ctx, url, limit)
	if errors.Is(err, did.ErrNotFound) {
		return b.next.Fetch(ctx, url, limit)
	}
	return got, err
}

// Keep implements [did.Keeper] for what came from next; what lies here is read each time.
func (b before) Keep(atMost time.Duration, urls ...string) {
	if k, ok := b.next.(did.Keeper); ok {
		k.Keep(atMost, urls...)
	}
}

// Serve answers a request for a log, and reports whether it was one: by GET or HEAD for a file of
// that name that lies here under the host that was asked for, or, where whatever is in front has
// changed that, under the only host that there is.
func (s *Shelf) Serve(w http.ResponseWriter, r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead || r.URL.RawPath != "" {
		return false
	}
	at := place("https://" + r.Host + r.URL.Path)
	if at == "" {
		return false
	}
	b, err := s.read(at, did.MaxLog)
	if errors.Is(err, did.ErrNotFound) {
		if host := s.onlyHost(); host != "" {
			b, err = s.read(host+"/"+at[strings.IndexByte(at, '/')+1:], did.MaxLog)
		}
	}
	if err != nil {
		return false
	}
	kind := "text/jsonl"
	if strings.HasSuffix(at, did.WitnessFile) {
		kind = "application/json"
	}
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Access-Control-Allow-Origin", "*") // resolvers in web pages; it is public
	h.Set("Cache-Control", "no-cache")
	h.Set("Content-Length", strconv.Itoa(len(b)))
	if r.Method == http.MethodGet {
		_, _ = w.Write(b) // a caller who left is no error of ours
	}
	return true
}

func (s *Shelf) onlyHost() string {
	entries, err := os.ReadDir(s.dir)
	host := ""
	for _, e := range entries {
		if e.IsDir() {
			if host != "" {
				return ""
			}
			host = e.Name()
		}
	}
	if err != nil {
		return ""
	}
	return host
}
