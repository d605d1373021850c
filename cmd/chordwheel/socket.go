package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// maxSocketPath is what a unix socket's address holds on the strictest system.
const maxSocketPath = 100

// socketPath gives a path by which the control socket of dir can be bound or
// dialled, and what to do when that is done. Addresses of sockets are short; on
// Linux a longer path is reached through an open directory.
func socketPath(dir string) (path string, done func(), err error) {
	path = filepath.Join(dir, socketName)
	if len(path) <= maxSocketPath {
		return path, func() {}, nil
	}
	if runtime.GOOS != "linux" {
		return "", nil, fmt.Errorf("the path of %s is too long for a socket (%d bytes, at most %d); use a shorter --dir", path, len(path), maxSocketPath)
	}
	f, err := os.Open(dir)
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", f.Fd(), socketName), func() { f.Close() }, nil
}

// listenControl opens the control socket of dir. The caller holds the
// directory's lock, so that a socket that is there belongs to nobody alive.
func listenControl(dir string) (net.Listener, error) {
	path, done, err := socketPath(dir)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := os.Remove(filepath.Join(dir, socketName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove the control socket of an earlier run: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("open the control socket: %w", err)
	}
	l.SetUnlinkOnClose(false) // by then the path may lead elsewhere; the next start removes it
	if err := os.Chmod(filepath.Join(dir, socketName), 0o600); err != nil {
		l.Close()
		return nil, fmt.Errorf("protect the control socket: %w", err)
	}
	return l, nil
}

// node is a running hub or device, spoken to over its control socket.
type node struct {
	dir    string
	what   string // for errors: "hub" or "device"
	client *http.Client
}

// newNode speaks to whatever listens in dir.
func newNode(dir, what string) *node {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return dialControl(ctx, dir) }
	return &node{dir: dir, what: what, client: &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// kindWait is how long a node that has its socket open may take to say what it
// is: it may just be starting.
const kindWait = 10 * time.Second

// reach finds the first of dirs where a node of this kind listens.
func reach(ctx context.Context, what string, dirs []string) (*node, error) {
	var other *node // a node, but not of the kind that is asked
	for _, dir := range dirs {
		n := newNode(dir, what)
		probe, cancel := context.WithTimeout(ctx, 2*time.Second)
		c, err := dialControl(probe, dir)
		cancel()
		if errors.Is(err, fs.ErrPermission) {
			return nil, refused("the %s in %s belongs to another user", what, dir)
		}
		if err != nil {
			continue
		}
		c.Close()
		kind, err := n.kind(ctx)
		if err != nil {
			return nil, err
		}
		if kind == what {
			return n, nil
		}
		other = n
		other.what = kind
	}
	if other != nil {
		return nil, usage("in %s runs a %s, and this command asks a %s: name the data directory of one with --dir", other.dir, other.what, what)
	}
	return nil, unreachable("no %s is running (looked in %s); start one with: chordwheel up, or name its data directory with --dir", what, strings.Join(dirs, ", "))
}

// kind asks a node whether it is a hub or a device.
func (n *node) kind(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, kindWait)
	defer cancel()
	var kind struct {
		Kind string `json:"kind"`
	}
	err := n.get(ctx, "/api/v1/kind", &kind)
	return kind.Kind, err
}

func dialControl(ctx context.Context, dir string) (net.Conn, error) {
	path, done, err := socketPath(dir)
	if err != nil {
		return nil, err
	}
	defer done()
	var d net.Dialer
	return d.DialContext(ctx, "unix", path)
}

// maxAnswer bounds what a command reads of a node's answer.
const maxAnswer = 64 << 20

// get reads a JSON answer into v.
func (n *node) get(ctx context.Context, path string, v any) error {
	return n.call(ctx, http.MethodGet, path, nil, v)
}

// call sends question as JSON, unless it is nil, and reads the answer into v,
// unless that is nil.
func (n *node) call(ctx context.Context, method, path string, question, v any) error {
	response, err := n.open(ctx, method, path, question)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	b, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the %s's answer: %w", n.what, err)
	}
	if response.StatusCode >= 300 {
		return answerError(n.what, method+" "+path, response.StatusCode, b)
	}
	if v == nil {
		return nil
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("read the %s's answer: %w", n.what, err)
	}
	return nil
}

// open sends a request and gives the answer as it comes. The caller closes its
// body.
func (n *node) open(ctx context.Context, method, path string, question any) (*http.Response, error) {
	var body io.Reader
	if question != nil {
		b, err := json.Marshal(question)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(b)
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, body)
	if err != nil {
		return nil, err
	}
	if question != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := n.client.Do(request)
	if err != nil {
		return nil, unreachable("speak to the %s in %s: %w", n.what, n.dir, err)
	}
	return response, nil
}

// answerError makes the error of an answer that says no.
func answerError(what, question string, status int, b []byte) error {
	var shape struct {
		Error struct {
			Message string `json:"message"`
			Code    string `json:"code"`
		} `json:"error"`
	}
	question, _, _ = strings.Cut(question, "?")
	message := fmt.Sprintf("the %s answered %d to %s without a reason: its version may be another than this program's (%s): compare with chordwheel status", what, status, question, version)
	if json.Unmarshal(b, &shape) == nil && shape.Error.Message != "" {
		message = shape.Error.Message
		if shape.Error.Code != "" {
			message += " (" + shape.Error.Code + ")"
		}
	}
	switch {
	case status == http.StatusForbidden || status == http.StatusUnauthorized:
		return refused("%s", message)
	case status == http.StatusBadRequest || status == http.StatusUnprocessableEntity:
		return usage("%s", message)
	case status == http.StatusBadGateway || status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout:
		return unreachable("%s", message)
	}
	return errors.New(message)
}
