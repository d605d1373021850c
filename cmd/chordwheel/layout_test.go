package main_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

const module = "github.com/chordwheel/chordwheel"

// The words that the import table uses for packages from elsewhere.
const (
	libp2p = "github.com/libp2p/..."
	multi  = "github.com/multiformats/..."
	bbolt  = "go.etcd.io/bbolt"
	yaml   = "github.com/goccy/go-yaml/..."
	sync   = "golang.org/x/sync/..."
	sumdb  = "golang.org/x/mod/sumdb/..."
	jcs    = "github.com/gowebpki/jcs"
	sys    = "golang.org/x/sys/..."
)

// vocabulary is what pure packages may use beyond the standard library: the
// bytes, addresses and signatures of policy, and nothing that opens anything.
var vocabulary = []string{
	"github.com/fxamacker/cbor/v2",
	"github.com/ipfs/go-cid",
	"github.com/multiformats/go-multihash",
	"github.com/multiformats/go-multibase",
	"github.com/libp2p/go-libp2p/core/crypto",
	"github.com/libp2p/go-libp2p/core/crypto/pb",
	"github.com/libp2p/go-libp2p/core/peer",
	"github.com/libp2p/go-libp2p/core/record",
}

// sockets and files are looked for among direct imports only: the core of
// libp2p brings net and os in, without using them for us.
var (
	sockets = []string{"net", "net/http/...", "net/rpc/...", "net/smtp", "net/textproto", "crypto/tls"}
	files   = []string{"os", "os/...", "path/filepath", "io/ioutil", "syscall", sys}
	// machinery must not even come in through another package.
	machinery = []string{"net/http", "crypto/tls", "github.com/quic-go/...", "github.com/libp2p/go-libp2p/p2p/net/swarm", bbolt}
)

// support are the packages that exist for tests.
var support = []string{"chain/chaintest", "store/storetest", "mesh/sim", "mesh/meshtest", "daemon/adapter/providertest", "daemon/adapter/adaptertest", "examples/testnet"}

// layout is the import table: the first row that matches a package holds for
// it, and a package without a row is a mistake in one or the other. Paths are
// relative to the module; "..." at the end also takes in what lies below.
var layout = []row{
	{
		packages: []string{"chain", "chain/estimate", "chain/order", "chain/delta", "chain/purse", "chain/throttle", "chain/nesting", "chain/chaintest"},
		ours:     []string{"chain", "chain/estimate", "chain/order"},
		others:   vocabulary,
		direct:   join(sockets, files), deep: machinery, pure: true,
		why: "policy is bytes and values: it has to be readable, fuzzed and trusted without a network, a disk, a goroutine or a clock",
	},
	{
		packages: []string{"chain/walk"},
		ours:     []string{"chain", "chain/estimate"},
		others:   vocabulary,
		direct:   join(sockets, files), deep: machinery,
		why: "the walk knows no transport: what it needs done goes through the Runner it declares",
	},
	{
		packages: []string{"chain/merkle"},
		ours:     []string{"chain"},
		others:   join(vocabulary, []string{sumdb}),
		direct:   join(sockets, files), deep: machinery, pure: true,
		why: "what anybody can check of a ledger must not need the ledger",
	},
	{
		packages: []string{"chain/receipt"},
		ours:     []string{"chain", "chain/merkle"},
		others:   join(vocabulary, []string{jcs}),
		direct:   join(sockets, files), deep: machinery, pure: true,
		why: "what is said of work is bytes, hashes and signatures: whoever makes, takes or audits a receipt means the same ones",
	},
	{
		packages: []string{"did"},
		ours:     []string{"chain", "chain/nesting"},
		others:   join(vocabulary, []string{jcs}),
		direct:   join(sockets, files), deep: machinery, pure: true,
		why: "what a DID stands for is decided by bytes, keys and the time, wherever the bytes came from",
	},
	{
		packages: []string{"did/fetch"},
		ours:     []string{"chain", "did"},
		others:   []string{},
		direct:   []string{"os", "os/...", "path/filepath"}, deep: []string{bbolt},
		why: "the one place that goes where strangers point must be small enough to be read whole",
	},
	{
		packages: []string{"did/shelf"},
		ours:     []string{"chain", "did"},
		others:   []string{},
		direct:   []string{libp2p, multi, bbolt}, deep: []string{bbolt},
		why: "it serves files to everybody: what it can reach must be seen at a glance",
	},
	{
		packages: []string{"store/spool"},
		ours:     []string{"store/internal/crash"}, // names of steps, for tests
		others:   []string{sys},
		direct:   sockets, deep: []string{"net/http"},
		why: "the spool keeps lines durable and must not know what a line means",
	},
	{
		packages: []string{"store/..."},
		ours:     []string{"chain", "chain/chaintest", "store/..."},
		direct:   join(sockets, []string{libp2p, multi}),
		why:      "the store knows disks, not nodes: what it keeps reaches it as chain's types and signed bytes",
	},
	{
		packages: []string{"mesh/wire", "mesh/member", "mesh/chord"},
		ours:     []string{"chain", "mesh/wire", "mesh/member"},
		others:   vocabulary,
		direct:   join(sockets, files), deep: machinery, pure: true,
		why: "messages and memberships are judged without I/O, so that a second implementation can be held to the same vectors",
	},
	{
		packages: []string{"mesh/..."},
		ours:     []string{"chain", "chain/chaintest", "mesh/..."},
		direct:   []string{bbolt},
		why:      "the mesh is transport: what it must keep goes through an interface it declares, what it hears is judged above",
	},
	{
		packages: []string{"orchestrator/fleet"},
		ours:     []string{"chain", "chain/estimate", "mesh/wire", "mesh/member", "mesh/chord"},
		others:   []string{},
		direct:   join(sockets, files), deep: machinery, pure: true,
		why: "the fleet is what devices told and when; it never goes and looks",
	},
	{
		packages: []string{"orchestrator/catalog", "orchestrator/learn", "orchestrator/resolve", "orchestrator/escalate", "orchestrator/quota"},
		ours:     []string{"chain", "chain/estimate", "chain/order", "orchestrator/catalog", "orchestrator/resolve"},
		others:   []string{yaml},
		direct:   join(sockets, files), deep: machinery, pure: true,
		why: "the same inputs give the same policy, byte for byte: no file, no socket, no clock may have a say",
	},
	{
		packages: []string{"orchestrator/simulate"},
		ours: []string{"chain", "chain/estimate", "chain/order", "chain/delta", "chain/walk", "chain/purse",
			"orchestrator/learn", "orchestrator/resolve", "orchestrator/quota", "orchestrator/escalate", "orchestrator/publish"},
		others: []string{yaml},
		direct: join(sockets, files), deep: machinery, pure: true,
		why: "a simulated world drives the policy as it is and nothing around it: the same seed gives the same bytes",
	},
	{
		packages: []string{"orchestrator/..."},
		ours:     []string{"chain/...", "did/...", "store/...", "mesh/...", "orchestrator/..."},
		direct:   []string{libp2p, multi, bbolt},
		why:      "hosts, streams and addresses stop at mesh, the database stops at store, and the hub never knows a device's inside",
	},
	{
		packages: []string{"daemon/adapter/providertest", "daemon/adapter/adaptertest"},
		ours:     []string{"chain", "chain/walk", "daemon/adapter"},
		direct:   []string{libp2p, multi, bbolt},
		why:      "a provider for tests is a stranger: it may know the dialect and the contract, not the device",
	},
	{
		packages: []string{"daemon/selection"},
		ours:     []string{"chain"},
		others:   vocabulary,
		direct:   join(sockets, files), deep: machinery, pure: true,
		why: "what a request asks for is decided by its words and the seed file alone, in microseconds and the same way everywhere",
	},
	{
		packages: []string{"daemon/gate", "daemon/bind", "daemon/executor", "daemon/sharing", "daemon/report", "daemon/job"},
		ours:     []string{"chain/...", "mesh/wire", "mesh/member", "mesh/chord", "daemon/sharing"},
		direct:   join(sockets, []string{libp2p, multi, bbolt}), deep: []string{"net/http", bbolt},
		why: "the device's decisions are taken without a transport: where one is needed, it is an interface declared here",
	},
	{
		packages: []string{"daemon/pipeline/..."},
		ours:     []string{"chain/...", "daemon/job", "daemon/pipeline/..."},
		direct:   join(sockets, files, []string{libp2p, multi, bbolt}), deep: []string{"net/http", bbolt},
		why: "what a hard question goes through is decided by answers and the clock; who runs a part is behind an interface, so that all of it runs on simulated time",
	},
	{
		packages: []string{"daemon/audit"},
		ours:     []string{"chain/...", "did", "store/spool", "daemon/authority", "daemon/retry"},
		direct:   join([]string{libp2p, multi, bbolt}, files), deep: []string{bbolt},
		why: "it speaks to a ledger, hub or not, and keeps nothing: lines wait in the spool",
	},
	{
		packages: []string{"daemon/witness"},
		ours:     []string{"chain/...", "daemon/audit"},
		direct:   join(sockets, []string{libp2p, multi, bbolt}, files), deep: []string{bbolt},
		why: "it judges what a ledger signed, whoever shows it",
	},
	{
		packages: []string{"daemon/lan", "daemon/retry"},
		ours:     []string{},
		others:   []string{},
		direct:   files, deep: []string{bbolt},
		why: "each answers one question of several rooms, and knows none of them",
	},
	{
		packages: []string{"daemon/edge", "daemon/token", "daemon/snapshot", "daemon/control", "daemon/adapter/..."},
		ours:     []string{"chain/...", "daemon/..."},
		direct:   []string{libp2p, multi, bbolt}, deep: []string{bbolt, "github.com/libp2p/go-libp2p/p2p/net/swarm"},
		why: "these speak HTTP to applications and providers; peers and the database are somebody else's, reached by interface",
	},
	{
		packages: []string{"daemon/..."},
		ours:     []string{"chain/...", "did/...", "store/...", "mesh/...", "daemon/..."},
		direct:   []string{libp2p, multi, bbolt},
		why:      "hosts, streams and addresses stop at mesh, the database stops at store, and a device never knows the hub's inside",
	},
	{
		packages: []string{"cmd/chordwheel"},
		ours:     []string{"..."},
		why:      "the command wires everything together",
	},
	{
		packages: []string{"examples/testnet"},
		ours:     []string{"..."},
		direct:   []string{libp2p, multi, bbolt},
		why:      "it puts the real parts together as the command does; what it needs of hosts and streams is the simulated network's",
	},
	{
		packages: []string{"bench", "examples/..."},
		ours:     []string{},
		why:      "what measures or shows the product meets it from outside, as its users do",
	},
}

// banned are marks that have no place in a file of this repository.
var banned = []mark{
	{`(^|[\s"'(=])/(root|home|Users|work)/[A-Za-z]`, "a path of somebody's machine", []string{"root/", "home/", "Users/", "work/"}},
	{`https?://(proxy|registry|deb)\.`, "the address of a registry: which one to use is each machine's own setting", []string{"//proxy.", "//registry.", "//deb."}},
	{`\bDESIG[N]\b`, "a page that is not in the repository: cite one of docs/", []string{"DESIG"}},
	{`^(<<<<<<<|>>>>>>>) `, "a conflict that was never resolved", []string{"<<<<<<<", ">>>>>>>"}},
	{`\b(TOD[O]|FIXM[E]|XX[X]X?)\b`, "unfinished work: finish it, or write it down in docs/open.md", []string{"TOD", "FIXM", "XX"}},
}

// TestImports holds the import table over the packages as the go command sees them.
func TestImports(t *testing.T) {
	for _, complaint := range checkImports(layout, listPackages(t)) {
		t.Error(complaint)
	}
}

// TestSources holds the rules that need only the text of the repository.
func TestSources(t *testing.T) {
	for _, complaint := range checkSources(os.DirFS("../.."), layout, banned) {
		t.Error(complaint)
	}
}

// listPackages asks the go command for every package of the module.
func listPackages(t *testing.T) []listed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports,TestImports,XTestImports,Deps", "./...")
	cmd.Dir = "../.."
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var packages []listed
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		packages = append(packages, p)
	}
}

func join(lists ...[]string) []string {
	var all []string
	for _, list := range lists {
		all = append(all, list...)
	}
	return all
}
