package orchestrator_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/mesh/wire"
	"github.com/chordwheel/chordwheel/orchestrator"
	"github.com/chordwheel/chordwheel/orchestrator/catalog"
	"github.com/chordwheel/chordwheel/orchestrator/fleet"
	"github.com/chordwheel/chordwheel/store"
	"github.com/chordwheel/chordwheel/store/datadir"
)

// The size that a hub is made for: a million workspaces of a thousand kinds, four
// primitives with twelve options each, 50,000 devices in as many of the workspaces.
const (
	manyWorkspaces = 1_000_000
	manyKinds      = 1000
	manyDevices    = 50_000
	manyOptions    = 12
	checkVerb      = "check-store"
)

func init() { bigHubMain = runBig }

var fourPrimitives = []string{"llm.chat", "llm.t1", "llm.t2", "embed.text"}

func bigWorkspace(i int) string { return fmt.Sprintf("%08x-%06d", uint32(i)*2654435761, i) }

// bigCatalogue writes the catalogue and its list of workspaces.
func bigCatalogue(dir string) error {
	var y, list strings.Builder
	y.WriteString("providers:\n")
	for i := range manyOptions {
		fmt.Fprintf(&y, "  - {name: p%d, adapter: openai, endpoint: \"https://p%d.example/v1\", models: [{name: m, primitives: [%s], price: {input_per_mtok: %g}, prior: {latency_ms: %d}}]}\n",
			i, i, strings.Join(fourPrimitives, ", "), float64(i%7)/10, 500+100*i)
	}
	y.WriteString("primitives:\n")
	for _, p := range fourPrimitives {
		fmt.Fprintf(&y, "  - {name: %s, default: [%s]}\n", p, options(0))
	}
	y.WriteString("workspaces:\n")
	for i := range manyKinds {
		fmt.Fprintf(&y, "  - {id: kind%d, weights: {second: %d}, prefer: [{options: [p%d/m]}]}\n", i, 100+i, i%manyOptions)
	}
	for i := range manyWorkspaces {
		fmt.Fprintf(&list, "%s kind%d\n", bigWorkspace(i), i%manyKinds)
	}
	if err := os.WriteFile(filepath.Join(dir, "c.yaml"), []byte(y.String()), 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "c.yaml.workspaces"), []byte(list.String()), 0o600)
}

func options(from int) string {
	var list []string
	for i := range manyOptions {
		list = append(list, fmt.Sprintf("p%d/m", (from+i)%manyOptions))
	}
	return strings.Join(list, ", ")
}

func readBig(dir string) (catalog.Catalog, error) {
	b, err := os.ReadFile(filepath.Join(dir, "c.yaml"))
	if err != nil {
		return catalog.Catalog{}, err
	}
	c, err := catalog.Parse("c.yaml", b)
	if err != nil {
		return c, err
	}
	f, err := os.Open(filepath.Join(dir, "c.yaml.workspaces"))
	if err != nil {
		return c, err
	}
	defer f.Close()
	return c.Enlist("c.yaml.workspaces", f)
}

// bigDevice is device i, a member of workspace i for as long as the test lasts.
func bigDevice(i int) fleet.Device {
	now := chain.InstantOf(time.Now())
	sum := sha256.Sum256(binary.LittleEndian.AppendUint64(nil, uint64(i)))
	id := fmt.Sprintf("%x-%x-4%x-8%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
	return fleet.Device{Peer: chain.PeerID("12D3KooW" + fmt.Sprintf("%x", sum[:22])), ID: chain.DeviceID(id), Name: fmt.Sprintf("device-%d", i),
		Scopes: []chain.ScopeID{chain.ScopeID("workspace:" + bigWorkspace(i*(manyWorkspaces/manyDevices)))}, Granted: []member.Pattern{"*"},
		Serial: uint64(i + 1), Issued: now, Expires: now + chain.Instant(8*24*time.Hour/time.Millisecond), Enrolled: now - 1000, Version: "1",
		Declared: []chain.Capability{"submit", "execute:llm.chat", chain.Capability([]string{"cpu:8", "cpu:16", "ram:32g"}[i%3])}, Seen: now,
		Boots: []fleet.Boot{{ID: id, Highest: 100, Window: 1<<64 - 1}}, Network: fmt.Sprintf("10.%d.%d.0/24", i/256%256, i%256)}
}

// openBig opens a hub on a directory, with the real store.
func openBig(dir string) (*orchestrator.Hub, *store.Store, error) {
	c, err := readBig(dir)
	if err != nil {
		return nil, nil, err
	}
	data, err := datadir.Open(filepath.Join(dir, "hub"))
	if err != nil {
		return nil, nil, err
	}
	key, err := data.Identity()
	if err != nil {
		return nil, nil, err
	}
	db, err := store.Open(data, store.Options{Check: store.CheckIn(os.Args[0], checkVerb)})
	if err != nil {
		return nil, nil, err
	}
	id, err := orchestrator.MeshID(data)
	if err != nil {
		return nil, nil, err
	}
	h, err := orchestrator.New(orchestrator.Config{Key: key, Mesh: id, Catalogue: c, Addrs: func() []string { return nil },
		Storage: orchestrator.Storage{Bucket: func(name string) orchestrator.Bucket { return db.Bucket(name) }, Files: data}})
	if err != nil {
		return nil, nil, err
	}
	return h, db, h.Start(context.Background(), &said{})
}

// runBig is the hub as a process of its own: it says when it has signed a chain for a
// device, and what it takes in memory once everything has been looked over.
func runBig(dir string) int {
	if len(os.Args) == 3 && os.Args[1] == checkVerb {
		return store.CheckMain(os.Args[2])
	}
	began := time.Now()
	debug.SetGCPercent(50) // as the command does, and so is the room
	room := make([]byte, 32<<20)
	defer runtime.KeepAlive(room)
	if path := os.Getenv(bigHub + "_CPU"); path != "" {
		f, _ := os.Create(path)
		_ = pprof.StartCPUProfile(f)
	}
	h, _, err := openBig(dir)
	pprof.StopCPUProfile()
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	d := bigDevice(manyDevices - 1)
	slot := chain.Slot{Scope: d.Scopes[0], Primitive: chain.LLMChat}
	if _, err := h.Fetch(context.Background(), d.Peer, wire.Fetch{Slot: slot}); err != nil {
		fmt.Println("error", err)
		return 1
	}
	fmt.Println("serving", time.Since(began).Milliseconds(), cpu())
	for {
		s, err := h.Overview(context.Background())
		if err != nil {
			fmt.Println("error", err)
			return 1
		}
		if s.Sweeping == 0 {
			fmt.Println("settled", time.Since(began).Milliseconds(), cpu(), s.Orders, s.Editions, s.Bodies)
			break
		}
		runtime.Gosched()
	}
	if path := os.Getenv(bigHub + "_PROFILE"); path != "" {
		f, _ := os.Create(path)
		runtime.GC()
		_ = pprof.WriteHeapProfile(f)
		_ = f.Close()
	}
	fmt.Println("rss", rss("VmRSS"), rss("RssAnon"), rss("VmHWM"))
	select {} // until it is killed
}

// cpu gives the milliseconds of processor time that this process took.
func cpu() int64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return (u.Utime.Nano() + u.Stime.Nano()) / 1e6
}

// rss gives a line of what the system says of this process's memory, in KiB.
func rss(what string) int {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, what+":"); ok {
			kb, _ := strconv.Atoi(strings.Fields(rest)[0])
			return kb
		}
	}
	return 0
}

// BenchmarkBigHub starts a hub of that size twice: once with devices that have no chains yet, and again after
// kill -9.
func BenchmarkBigHub(b *testing.B) {
	dir := b.TempDir()
	if err := bigCatalogue(dir); err != nil {
		b.Fatal(err)
	}
	fill(b, filepath.Join(dir, "hub"))
	for b.Loop() {
		for _, when := range []string{"first", "again"} {
			c := exec.Command(os.Args[0])
			c.Env = append(os.Environ(), bigHub+"="+dir)
			out, err := c.StdoutPipe()
			if err != nil {
				b.Fatal(err)
			}
			if err := c.Start(); err != nil {
				b.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			for lines.Scan() {
				f := strings.Fields(lines.Text())
				b.Log(when, lines.Text())
				at := func(i int) float64 { v, _ := strconv.ParseFloat(f[i], 64); return v }
				switch f[0] {
				case "serving":
					b.ReportMetric(at(1), when+"-serving-ms")
					b.ReportMetric(at(2), when+"-serving-cpu-ms")
				case "settled":
					b.ReportMetric(at(2), when+"-settled-cpu-ms")
				case "rss":
					b.ReportMetric(at(1)/1024, when+"-rss-MiB")
					b.ReportMetric(at(2)/1024, when+"-anon-MiB")
					b.ReportMetric(at(3)/1024, when+"-peak-MiB")
				}
				if f[0] == "rss" || f[0] == "error" {
					break
				}
			}
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	}
}

// fill writes the devices as visits would have.
func fill(b *testing.B, path string) {
	data, err := datadir.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	db, err := store.Open(data, store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	bucket := db.Bucket("hub-devices")
	records := map[string]any{}
	for i := range manyDevices {
		d := bigDevice(i)
		records[string(d.Peer)] = d
		if len(records) == 5000 {
			if err := bucket.PutAll(records); err != nil {
				b.Fatal(err)
			}
			clear(records)
		}
	}
	if db.Close() != nil || data.Close() != nil {
		b.Fatal("closing failed")
	}
}

// BenchmarkResolveAll is a full re-resolution: a thousand distinct sets of overrides, four
// primitives, twelve options.
func BenchmarkResolveAll(b *testing.B) {
	dir := b.TempDir()
	if err := bigCatalogue(dir); err != nil {
		b.Fatal(err)
	}
	c, err := readBig(dir)
	if err != nil {
		b.Fatal(err)
	}
	r := start(b, newDisk(), c)
	for i := range manyKinds {
		d := r.device(fmt.Sprintf("%06d", i))
		if _, err := d.enrol(r.invite(orchestrator.Invite{Scope: chain.ScopeID("workspace:" + bigWorkspace(i))})); err != nil {
			b.Fatal(err)
		}
	}
	before := r.overview()
	b.ResetTimer()
	n, used := 0, cpu()
	for b.Loop() {
		if err := r.Reload(context.Background(), c); err != nil {
			b.Fatal(err)
		}
		n++
	}
	b.StopTimer()
	b.ReportMetric(float64(cpu()-used)/float64(n), "cpu-ms/op")
	b.ReportMetric(float64(r.overview().Orders-before.Orders)/float64(n), "orders/op")
}

func (r *rig) overview() orchestrator.Overview {
	o, err := r.Overview(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	return o
}
