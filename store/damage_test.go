package store_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
	"github.com/chordwheel/chordwheel/store"
	"github.com/chordwheel/chordwheel/store/datadir"
	"github.com/chordwheel/chordwheel/store/storetest"
)

// canary stands in keys and values; it must never be in a log or an error.
const canary = "canary-7c1d"

// filled makes a data directory with a chain, a bucket of records and a few
// free pages, closed in order, and gives its path.
func filled(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "data")
	d := start(t, path, store.Options{}, now)
	must(t, offer(d, chaintest.Slot, 1))
	must(t, offer(d, chaintest.Slot, 2))
	records := make(map[string]any)
	for i := range 60 {
		records[canary+strconv.Itoa(i)] = strings.Repeat(canary, 20)
	}
	b := d.store.Bucket("notes")
	must(t, b.PutAll(records))
	must(t, b.Delete(canary+"7"))
	stop(t, d)
	return path
}

// rightOrNone checks that what d gives is what filled put there, or nothing,
// and that d can be written.
func rightOrNone(d device) error {
	if n := number(d, chaintest.Slot); n != 0 && n != 2 {
		return errors.New("chain " + strconv.FormatUint(n, 10) + " is in force")
	}
	if d.marks.Get(chaintest.Slot).Seq != 2 {
		return errors.New("the mark is gone")
	}
	b := d.store.Bucket("notes")
	for i := range 60 {
		var got string
		if ok, err := b.Get(canary+strconv.Itoa(i), &got); err != nil || ok && got != strings.Repeat(canary, 20) {
			return errors.New("a record is neither right nor gone")
		}
	}
	if err := b.Each(func(key string, decode func(any) error) error {
		var got string
		if err := decode(&got); err != nil || got != strings.Repeat(canary, 20) || !strings.HasPrefix(key, canary) {
			return errors.New("a record is neither right nor gone")
		}
		return nil
	}); err != nil {
		return err
	}
	if err := b.Put("new", 1); err != nil {
		return err
	}
	if err := offer(d, chaintest.Slot, 3); err != nil {
		return err
	}
	if n := number(d, chaintest.Slot); n != 3 {
		return errors.New("the next chain is not in force")
	}
	return nil
}

// logged gives options that check in a child process and log into the buffer.
func logged() (store.Options, *bytes.Buffer) {
	var log bytes.Buffer
	o := storetest.Options()
	o.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return o, &log
}

func pageSize(b []byte) int { return int(binary.NativeEndian.Uint32(b[24:])) }

// Every kind of damage to the file, found at a start after a stop in order and
// after a kill.
func TestADamagedDatabaseIsSurvived(t *testing.T) {
	template := filled(t)
	whole, err := os.ReadFile(filepath.Join(template, datadir.DatabaseFile))
	must(t, err)
	page := pageSize(whole)
	random := storetest.Random(t, *seed)
	noise := func(b []byte) {
		for i := range b {
			b[i] = byte(random.Uint32())
		}
	}
	cases := map[string]struct {
		spoil func(b []byte) []byte
		aside bool // it must be noticed at once
	}{
		"empty":             {func([]byte) []byte { return nil }, true},
		"one byte":          {func(b []byte) []byte { return b[:1] }, true},
		"first page only":   {func(b []byte) []byte { return b[:page] }, true},
		"headers only":      {func(b []byte) []byte { return b[:2*page] }, true},
		"cut in half":       {func(b []byte) []byte { return b[:len(b)/2] }, true},
		"cut by a page":     {func(b []byte) []byte { return b[:usedPages(b)*page-page] }, true},
		"cut within a page": {func(b []byte) []byte { return b[:usedPages(b)*page-100] }, true},
		"noise":             {func(b []byte) []byte { noise(b); return b }, true},
		"zeros":             {func(b []byte) []byte { clear(b); return b }, true},
		"text":              {func([]byte) []byte { return []byte(strings.Repeat("hello\n", 4000)) }, true},
		"both headers":      {func(b []byte) []byte { b[20]++; b[page+20]++; return b }, true},
		"one header":        {func(b []byte) []byte { noise(b[:page]); return b }, false},
		"other header":      {func(b []byte) []byte { noise(b[page : 2*page]); return b }, false},
		"headers swapped": {func(b []byte) []byte {
			first := bytes.Clone(b[:page])
			copy(b, b[page:2*page])
			copy(b[page:], first)
			return b
		}, false},
	}
	for i := 2; i < usedPages(whole); i++ {
		name := "page " + strconv.Itoa(i)
		cases[name+" zero"] = struct {
			spoil func(b []byte) []byte
			aside bool
		}{func(b []byte) []byte { clear(b[i*page : i*page+page]); return b }, false}
		if whole[i*page+8] == 1 { // a branch
			cases[name+" points to itself"] = struct {
				spoil func(b []byte) []byte
				aside bool
			}{func(b []byte) []byte { binary.NativeEndian.PutUint64(b[i*page+24:], uint64(i)); return b }, false}
		}
		cases[name+" noise"] = struct {
			spoil func(b []byte) []byte
			aside bool
		}{func(b []byte) []byte { noise(b[i*page : i*page+page]); return b }, false}
		cases[name+" is another"] = struct {
			spoil func(b []byte) []byte
			aside bool
		}{func(b []byte) []byte {
			j := 2 + (i-1)%(usedPages(b)-2)
			copy(b[i*page:i*page+page], b[j*page:j*page+page])
			return b
		}, false}
	}
	for name, c := range cases {
		for _, killed := range []bool{false, true} {
			how := map[bool]string{false: ", stopped in order", true: ", killed"}[killed]
			t.Run(name+how, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "data")
				storetest.Copy(t, template, dir)
				path := filepath.Join(dir, datadir.DatabaseFile)
				must(t, os.WriteFile(path, c.spoil(bytes.Clone(whole)), 0o600))
				if killed {
					must(t, os.WriteFile(path+".open", nil, 0o600))
				}
				o, log := logged()
				d := start(t, dir, o, now)
				must(t, rightOrNone(d))
				if aside := d.store.Status().Replaced > 0; c.aside && !aside {
					t.Error("the file was not set aside")
				} else if aside && !strings.Contains(log.String(), "set aside") {
					t.Error("the log does not say so")
				}
				if strings.Contains(log.String(), canary) || strings.Count(log.String(), "set aside") > 1 {
					t.Errorf("log: %.2000s", log.String())
				}
				stop(t, d)
				d = start(t, dir, o, now)
				if n := number(d, chaintest.Slot); n != 3 {
					t.Errorf("after another start chain %d is in force", n)
				}
				stop(t, d)
			})
		}
	}
}

// usedPages gives the number of pages that the newest header speaks of.
func usedPages(b []byte) int {
	page := pageSize(b)
	first, second := b[16:], b[page+16:]
	n := binary.NativeEndian
	if n.Uint64(second[48:]) > n.Uint64(first[48:]) {
		first = second
	}
	return int(n.Uint64(first[40:]))
}

// flips opens the template in DIR with one byte of its database changed, from
// byte FROM on in steps of STEP, and says each that it begins: FROM STEP DIR.
func flips(args []string) int {
	from, _ := strconv.Atoi(args[0])
	step, _ := strconv.Atoi(args[1])
	path := filepath.Join(args[2], datadir.DatabaseFile)
	whole, err := os.ReadFile(path + ".whole")
	if err != nil {
		return fail(err)
	}
	marks, err := os.ReadFile(filepath.Join(args[2], "marks.whole"))
	if err != nil {
		return fail(err)
	}
	used := usedPages(whole) * pageSize(whole) // what follows is never read
	for i := from; i < used; i += step {
		storetest.Ack("%d", i)
		spoilt := bytes.Clone(whole)
		spoilt[i] ^= 1 << (i % 8)
		if err := errors.Join(os.Remove(path), os.WriteFile(path, spoilt, 0o600)); err != nil {
			return fail(err)
		}
		for _, name := range []string{"marks", "marks.bak"} { // the last round raised them
			if err := os.WriteFile(filepath.Join(args[2], name), marks, 0o600); err != nil {
				return fail(err)
			}
		}
		d, err := openDevice(args[2], store.Options{}, now)
		if err != nil {
			return fail(err)
		}
		if err := errors.Join(rightOrNone(d), d.close()); err != nil {
			return fail(err)
		}
		_ = os.Remove(path + ".open") // it is left after a panic
	}
	return 0
}

// Bytes of the database are changed one at a time; the process neither dies
// nor takes wrong content for right.
func TestEveryByteChanged(t *testing.T) {
	template := filled(t)
	dir := filepath.Join(t.TempDir(), "data")
	storetest.Copy(t, template, dir)
	path := filepath.Join(dir, datadir.DatabaseFile)
	for from, to := range map[string]string{path: path + ".whole", filepath.Join(dir, "marks"): filepath.Join(dir, "marks.whole")} {
		b, err := os.ReadFile(from)
		must(t, err)
		must(t, os.WriteFile(to, b, 0o600))
	}
	step, from := 1, 0
	if !*thorough {
		step = 397
		from = storetest.Random(t, *seed).IntN(step)
	}
	cmd := storetest.Child(t, "flips", strconv.Itoa(from), strconv.Itoa(step), dir)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	last, count := "none", 0
	for scan := bufio.NewScanner(out); scan.Scan(); count++ {
		last = scan.Text()
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("at byte %s: %v", last, err)
	}
	t.Logf("%d bytes changed", count)
}

// The file is cut and overwritten while it is open: the call that meets it,
// or the one after, works on an empty database, and what was in memory stays.
func TestDamageWhileItIsOpen(t *testing.T) {
	spoils := map[string]func(path string) error{
		"cut": func(path string) error { return os.Truncate(path, 8192) },
		"noise": func(path string) error {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			random := rand.New(rand.NewPCG(1, 2))
			for i := range b {
				b[i] = byte(random.Uint32())
			}
			f, err := os.OpenFile(path, os.O_WRONLY, 0) // in place: under the mapping
			if err != nil {
				return err
			}
			_, err = f.WriteAt(b, 0)
			return errors.Join(err, f.Close())
		},
	}
	for name, spoil := range spoils {
		t.Run(name, func(t *testing.T) {
			path := filled(t)
			o, log := logged()
			d := start(t, path, o, now)
			must(t, spoil(filepath.Join(path, datadir.DatabaseFile)))
			var got string
			_, _ = d.store.Bucket("notes").Get(canary+"3", &got)
			if n := number(d, chaintest.Slot); n != 2 {
				t.Errorf("chain %d is in force", n)
			}
			must(t, d.store.Bucket("notes").Put("new", 1))
			other := chain.Slot{Scope: "session:s", Primitive: chain.LLMChat}
			must(t, offer(d, other, 5))
			if s := d.store.Status(); !s.Available || s.Replaced != 1 {
				t.Errorf("status %+v", s)
			}
			if strings.Contains(log.String(), canary) {
				t.Errorf("log: %.2000s", log.String())
			}
			stop(t, d)
			// What was only in memory went to the new file with the next chain.
			d = start(t, path, o, now)
			if a, b := number(d, chaintest.Slot), number(d, other); a != 2 || b != 5 {
				t.Errorf("after a restart chains %d and %d are in force", a, b)
			}
		})
	}
}

func TestADiskThatAlwaysFailsIsGivenUp(t *testing.T) {
	path := filled(t)
	d := start(t, path, store.Options{}, now)
	for range 5 {
		_ = os.Truncate(filepath.Join(path, datadir.DatabaseFile), 0)
		_ = d.store.Bucket("notes").Put("k", 1)
	}
	if s := d.store.Status(); s.Available || s.Replaced != 3 {
		t.Errorf("status %+v", s)
	}
	if err := d.store.Bucket("notes").Put("k", 1); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("err = %v", err)
	}
	other := chain.Slot{Scope: "session:s", Primitive: chain.LLMChat}
	if err := offer(d, other, 5); !errors.Is(err, store.ErrNotStored) || number(d, other) != 5 {
		t.Errorf("err = %v, chain %d", err, number(d, other))
	}
	if aside, _ := filepath.Glob(filepath.Join(path, "*.damaged-*")); len(aside) != 2 {
		t.Errorf("%d files are kept aside", len(aside))
	}
}

// A check that says "damaged" sets a sound file aside; one that could not run
// does not; and there is none after a stop in order.
func TestTheCheckDecides(t *testing.T) {
	cases := map[string]struct {
		killed bool
		answer error
		number uint64
		asked  int
	}{
		"stopped in order": {false, store.ErrDamaged, 2, 0},
		"sound":            {true, nil, 2, 1},
		"damaged":          {true, store.ErrDamaged, 0, 1},
		"could not run":    {true, errors.New("no such program"), 2, 1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			path := filled(t)
			file := filepath.Join(path, datadir.DatabaseFile)
			if c.killed {
				must(t, os.WriteFile(file+".open", nil, 0o600))
			}
			asked := 0
			d := start(t, path, store.Options{Check: func(_ context.Context, p string) error {
				if p != file {
					t.Errorf("asked about %s", p)
				}
				asked++
				return c.answer
			}}, now)
			if n := number(d, chaintest.Slot); n != c.number || asked != c.asked {
				t.Errorf("chain %d, asked %d times", n, asked)
			}
			if _, err := os.Stat(file + ".open"); err != nil {
				t.Errorf("no marker while it is open: %v", err)
			}
			stop(t, d)
			if _, err := os.Stat(file + ".open"); err == nil {
				t.Error("the marker stands after a stop in order")
			}
		})
	}
}

func TestCheckInAChild(t *testing.T) {
	path := filepath.Join(filled(t), datadir.DatabaseFile)
	run := storetest.Options().Check
	must(t, run(t.Context(), path))
	b, err := os.ReadFile(path)
	must(t, err)
	page := pageSize(b)
	for i := 2; i < usedPages(b); i++ {
		copy(b[i*page:(i+1)*page], bytes.Repeat([]byte{0xa5}, page))
	}
	must(t, os.WriteFile(path, b, 0o600))
	if err := run(t.Context(), path); !errors.Is(err, store.ErrDamaged) || strings.Contains(err.Error(), canary) {
		t.Errorf("err = %v", err)
	}
	if err := run(t.Context(), path+"-absent"); err == nil || errors.Is(err, store.ErrDamaged) {
		t.Errorf("a file that is not there: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := run(ended, path); err == nil || errors.Is(err, store.ErrDamaged) {
		t.Errorf("a check that was ended: %v", err)
	}
	if err := store.CheckIn(filepath.Join(t.TempDir(), "absent"))(t.Context(), path); err == nil || errors.Is(err, store.ErrDamaged) {
		t.Errorf("a program that is not there: %v", err)
	}
}

func TestAMissingDatabaseIsSaid(t *testing.T) {
	path := filled(t)
	must(t, os.Remove(filepath.Join(path, datadir.DatabaseFile)))
	o, log := logged()
	d := start(t, path, o, now)
	if !strings.Contains(log.String(), "missing") {
		t.Errorf("log: %s", log)
	}
	must(t, rightOrNone(d))
}

func TestOthersRightsOnTheDatabaseAreRefused(t *testing.T) {
	path := filled(t)
	file := filepath.Join(path, datadir.DatabaseFile)
	must(t, os.Chmod(file, 0o644))
	if _, err := openDevice(path, store.Options{}, now); !errors.Is(err, datadir.ErrRights) || !strings.Contains(err.Error(), "chmod 600 ") {
		t.Errorf("err = %v", err)
	}
	must(t, os.Chmod(file, 0o600))
	must(t, os.Rename(file, file+"-elsewhere"))
	must(t, os.Symlink(file+"-elsewhere", file))
	if _, err := openDevice(path, store.Options{}, now); !errors.Is(err, datadir.ErrRights) {
		t.Errorf("err = %v", err)
	}
}
