package did

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// others gives a log that another implementation wrote, the approvals of its witnesses, and
// the DID that it says it is of.
func others(t *testing.T, name string) (log, approvals []byte, did string) {
	t.Helper()
	dir := filepath.Join("testdata", "webvh", filepath.FromSlash(name))
	log, err := os.ReadFile(filepath.Join(dir, LogFile))
	must(t, err)
	if approvals, err = os.ReadFile(filepath.Join(dir, WitnessFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSpace(log), []byte("\n"))
	var last struct {
		State struct {
			ID string `json:"id"`
		} `json:"state"`
	}
	must(t, json.Unmarshal(lines[len(lines)-1], &last))
	return log, approvals, last.State.ID
}

// Logs of five other implementations resolve here, also as they were after each of their
// entries; testdata/webvh/README.md says where they are from.
func TestLogsOfOthers(t *testing.T) {
	now := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	for name, want := range map[string]struct {
		versions, assertion, authentication int
		portable, deactivated               bool
	}{
		"basic-create-ts":           {1, 0, 1, false, false},
		"basic-create-rust":         {1, 1, 1, false, false},
		"portable-rust":             {2, 0, 1, true, false},
		"pre-rotation-consume-java": {3, 0, 1, false, false}, // its assertionMethod names a key that is not there
		"witness-update-python":     {2, 0, 1, false, false},
		"deactivate-dart":           {2, 0, 0, false, true},
		"prerotated-ts":             {4, 1, 0, false, false},
		"witnessed-ts":              {3, 1, 0, false, false},
		"moved-ts":                  {2, 1, 0, true, false},
		"deactivated-ts":            {4, 0, 0, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			log, approvals, did := others(t, name)
			r, err := Verify(log, approvals, did, Want{}, now)
			must(t, err)
			if name == "witness-update-python" && (r.Threshold != 1 || len(r.Witnesses) != 1) || name == "prerotated-ts" && len(r.Watchers) != 1 {
				t.Errorf("metadata: %+v", r)
			}
			if r.DID != did || r.Portable != want.portable || r.Deactivated != want.deactivated || len(r.Keys(Assertion)) != want.assertion || len(r.Keys(Authentication)) != want.authentication {
				t.Errorf("%+v", r)
			}
			lines := bytes.SplitAfter(bytes.TrimSpace(log), []byte("\n"))
			if len(lines) != want.versions {
				t.Errorf("%d entries", len(lines))
			}
			for _, line := range lines {
				e, err := parseObject(line)
				must(t, err)
				id, err := e.string("versionId")
				must(t, err)
				v, err := Verify(log, approvals, did, Want{VersionID: id}, now)
				if err != nil || v.VersionID != id || !bytes.Equal(v.Document, e["state"]) {
					t.Errorf("%s: %+v, %v", id, v, err)
				}
			}
			if approvals != nil {
				if _, err := Verify(log, nil, did, Want{}, now); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "witness") {
					t.Errorf("without its witnesses: %v", err)
				}
			}
		})
	}
}

// What the method's test suite wants refused is refused, for its own reason: those logs
// came of faults that other implementations had.
func TestLogsOfOthersThatAreWrong(t *testing.T) {
	now := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	refused := map[string]string{
		"unknown-method-version":       "entry 1: parameters: method: want did:webvh:1.0",
		"scid-mismatch-genesis":        "entry 1: scid: it is not that of this entry",
		"portable-scid-swap":           "entry 2: state: invalid DID: no SCID",
		"pre-rotation-omit-updatekeys": "entry 2: parameters: nextKeyHashes: pre-rotation wants updateKeys",
		"wrong-cryptosuite":            "entry 1: proof: cryptosuite: want eddsa-jcs-2022",
		"versiontime-non-monotonic":    "entry 2: versionTime: not after the entry before",
		"versiontime-future":           "entry 2: versionTime: in the future",
		"cross-did-witness-replay":     "witness: 0 of 1 approvals",
		"invalid-ported":               "entry 2: state: id: the DID was moved and is not portable",
	}
	entries, err := os.ReadDir("testdata/webvh/refused")
	must(t, err)
	for _, e := range entries {
		want, ok := refused[e.Name()]
		log, approvals, did := others(t, "refused/"+e.Name())
		if _, err := parseWebVH(did); err != nil { // what it is of was changed: ask for what it began as
			_, did, _ = strings.Cut(string(log), `"controller":"`)
			did, _, _ = strings.Cut(did, `"`)
		}
		if _, err := Verify(log, approvals, did, Want{}, now); !ok || !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want …%s…", e.Name(), err, want)
		}
	}
	if len(entries) != len(refused) {
		t.Errorf("%d logs, %d reasons", len(entries), len(refused))
	}
}
