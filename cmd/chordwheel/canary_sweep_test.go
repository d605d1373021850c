package main

import (
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/daemon/adapter/providertest"
)

// coreful lets a command write its memory to the disk when it is aborted, unless it sees
// to it itself.
func coreful(cmd *exec.Cmd) *exec.Cmd {
	with := exec.Command("sh", append([]string{"-c", `ulimit -c unlimited 2>/dev/null || ulimit -S -c "$(ulimit -H -c)"; exec "$0" "$@"`, cmd.Path}, cmd.Args[1:]...)...)
	with.Env = cmd.Env
	return with
}

// stages answers what a hard question asks for, with the marker in the plan, in an answer, in
// an error and in what is wrong with the answer.
func (c *canary) stages() providertest.Play {
	m, scored := c.marker, atomic.Int32{}
	return func(x *providertest.Exchange) {
		body, text := string(x.Request.Body), m+"-words"
		switch {
		case strings.Contains(body, "depends_on"):
			text = `{"subtasks":[{"id":"` + m + `","type":"` + m + `","prompt":"` + m + `-part","tier":1},{"id":"y","type":"analysis","prompt":"` + m + `-other","tier":2}],"synthesis":"supervisor"}`
		case strings.Contains(body, "issues"):
			text = `{"score": 0.9, "issues": []}`
			if scored.Add(1) == 1 {
				text = `{"score": 0.2, "issues": ["` + m + `-issue: it says ` + m + `"]}`
			}
		case strings.Contains(body, `"m2"`):
			providertest.Refusal(500, `{"error":{"message":"`+m+`-broke"}}`)(x)
			return
		}
		providertest.Healthy(text)(x)
	}
}

// hardQuestion has a question cut into parts, put together and written anew.
func (c *canary) hardQuestion() {
	c.t.Helper()
	for _, stream := range []bool{false, true} {
		body, _ := json.Marshal(map[string]any{"model": "auto", "stream": stream, "messages": []map[string]string{{"role": "user", "content": c.marker + " " + hardQuestion}}})
		if status, answer := c.send(0, "/v1/chat/completions", string(body), "X-Chordwheel-Progress", "reasoning"); status != http.StatusOK {
			c.t.Errorf("a hard question: %d %s", status, answer)
		}
	}
	if said := good(c.t, "jobs", "--json", "--dir", filepath.Join(c.root, "up", "a")); !strings.Contains(said, `"score":0.2`) && !strings.Contains(said, `"first_score":0.2`) {
		c.t.Errorf("nothing was found wrong with an answer: %s", said)
	}
}

// overHTTP lets a provider over HTTP do work of b, well and badly.
func (c *canary) overHTTP() {
	c.t.Helper()
	m := c.marker
	invitation := strings.TrimSpace(good(c.t, "invite", "--dir", filepath.Join(c.root, "up", "hub")))
	c.send(1, "/api/v1/providers", `{"invitation":"`+m+`","capabilities":["`+m+`"],"worker_class":"`+m+`"}`)
	_, answer := c.send(1, "/api/v1/providers", `{"invitation":"`+invitation+`","capabilities":["execute:fetch.plain"],"worker_class":"server"}`)
	var provider struct{ ID, Key string }
	if err := json.Unmarshal([]byte(answer), &provider); err != nil || provider.Key == "" {
		c.t.Fatalf("no provider: %s", answer)
	}
	c.words = append(c.words, provider.Key, invitation)
	base, key := strings.TrimSuffix(c.up.ready.Devices[1].Edge, "/v1"), []string{"Authorization", "Bearer " + provider.Key}
	answered := make(chan bool, 1)
	go func() {
		for end := time.Now().Add(patience); time.Now().Before(end); <-time.After(20 * time.Millisecond) { // until the chain is there
			status, answer := c.send(1, "/api/v1/work/fetch.plain", `{"input":{"url":"http://`+m+`"},"options":{"`+m+`":"`+m+`"}}`)
			if status == http.StatusOK && strings.Contains(answer, m) {
				answered <- true
				return
			}
		}
		answered <- false
	}()
	for served, end := false, time.Now().Add(patience); !served && time.Now().Before(end); {
		var list struct{ Jobs []struct{ ID string } }
		_, answer := c.call(http.MethodGet, base+"/api/v1/providers/"+provider.ID+"/jobs?wait=1", 1, "", key...)
		_ = json.Unmarshal([]byte(answer), &list)
		for _, job := range list.Jobs {
			served = true
			c.send(1, "/api/v1/jobs/"+job.ID+"/heartbeat", `{}`, key...)
			for _, result := range []string{`{"state":"running","text":"` + m + `"}`, `{"state":"` + m + `"}`, `{"state":"done","output":null,"` + m + `":"` + m + `"}`,
				`{"state":"done","output":{"page":"` + m + `"}}`, `{"state":"done","output":{"page":"` + m + `-other"}}`, `{"state":"failed","reason":"` + m + `"}`} {
				c.send(1, "/api/v1/jobs/"+job.ID+"/result", result, key...)
			}
		}
	}
	if !<-answered {
		c.t.Error("no provider over HTTP did anything")
	}
	c.send(1, "/api/v1/jobs/"+m+"/result", `{"state":"failed","reason":"`+m+`"}`, key...)
	c.send(1, "/api/v1/jobs/x/result", `{"state":"failed"}`, "Authorization", "Bearer "+m)
}

// elsewhere says the marker at every other door.
func (c *canary) elsewhere() {
	c.t.Helper()
	m, d := c.marker, c.up.ready.Devices[0]
	for _, url := range []string{c.up.ready.Hub.URL, d.Admin} {
		c.call(http.MethodGet, url+"/"+m+"?"+m, 0, "", "User-Agent", m, "Authorization", "Bearer "+m)
		c.call(http.MethodPost, url+"/admin/snapshot/refresh", 0, m, "Authorization", "Bearer "+m)
	}
	services := http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer services.CloseIdleConnections()
	for _, path := range []string{"/audit/v1/receipts", "/trust/v1/challenge", "/trust/v1/token", "/" + m} {
		for _, body := range []string{`{"did":"did:key:` + m + `","` + m + `":"` + m + `"}`, m} {
			r, err := services.Post(c.up.ready.Hub.Authority+path, "application/json", strings.NewReader(body))
			if err != nil {
				c.t.Fatal(err)
			}
			r.Body.Close()
		}
	}
	for _, args := range [][]string{{"chat", m}, {"run", "llm.chat", m}, {"gate", "check", m}, {"receipts", "show", m}} {
		command(c.t, append(args, "--dir", d.DataDir)...)
	}
	if _, metrics := c.call(http.MethodGet, d.Admin+"/metrics", 0, ""); !strings.Contains(metrics, "chordwheel_requests_total") || strings.Contains(strings.ToLower(metrics), strings.ToLower(m)) {
		c.t.Errorf("metrics: %s", metrics)
	}
}

// mintedToken is the beginning of every token that the hub mints: its header.
var mintedToken = base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"EdDSA","kid":`))

// find gives the place in text of the marker in whatever case, as it stands, in hexadecimal or
// in base64, or of one of the other words as it stands; -1 without any.
func (c *canary) find(text []byte) int {
	folded := bytes.ToLower(text)
	for _, word := range []string{strings.ToLower(c.marker), hex.EncodeToString([]byte(c.marker))} {
		if at := bytes.Index(folded, []byte(word)); at >= 0 {
			return min(at, len(text)) // folding may make what is no UTF-8 longer
		}
	}
	words := append([]string{mintedToken}, c.words...)
	for shift := range 3 { // the same bytes look different at each place of three
		for _, as := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			word := as.EncodeToString([]byte(strings.Repeat("x", shift) + c.marker))
			words = append(words, word[(8*shift+5)/6:len(word)-1]) // without what the bytes before and behind are part of
		}
	}
	for _, word := range words {
		if at := bytes.Index(text, []byte(word)); at >= 0 {
			return at
		}
	}
	return -1
}

// sweep looks for it in all that the process said and wrote.
func (c *canary) sweep() {
	c.t.Helper()
	for name, text := range map[string]string{"the log": c.up.log.String(), "standard output": c.up.out.String()} {
		if at := c.find([]byte(text)); at >= 0 {
			c.t.Errorf("%s has it: …%s…", name, text[max(0, at-400):min(len(text), at+100)])
		}
	}
	files := map[string]int{}
	err := filepath.WalkDir(c.root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		name, _ := filepath.Rel(c.root, path)
		files[strings.Split(name, string(filepath.Separator))[0]]++
		if strings.HasPrefix(e.Name(), "core") {
			c.t.Errorf("the crash left %s", path)
		}
		b, err := os.ReadFile(path)
		if at := c.find(b); at >= 0 {
			c.t.Errorf("%s has it: %q", path, b[max(0, at-60):min(len(b), at+60)])
		}
		return err
	})
	if err != nil || files["up"] < 10 {
		c.t.Errorf("files %v: %v", files, err)
	}
}

// What the sweep looks for it finds, however it is written.
func TestTheSweepFinds(t *testing.T) {
	c := &canary{t: t, marker: "cAnArY-91c4", words: []string{"pk-1"}}
	for _, text := range []string{c.marker, "a canary-91C4 b", hex.EncodeToString([]byte("x" + c.marker)), "x pk-1", mintedToken + "abc"} {
		if c.find([]byte(text)) < 0 {
			t.Errorf("not found: %s", text)
		}
	}
	for n := range 7 {
		for behind := range 4 {
			text := bytes.Join([][]byte{bytes.Repeat([]byte("?"), n), []byte(c.marker), bytes.Repeat([]byte("\xff"), behind)}, nil)
			for _, as := range []*base64.Encoding{base64.StdEncoding, base64.RawURLEncoding} {
				if s := as.EncodeToString(text); c.find([]byte(s)) < 0 {
					t.Errorf("not found behind %d bytes: %s", n, s)
				}
			}
		}
	}
	if c.find([]byte("cAnArY-91c and an eyJh, and nothing else")) >= 0 {
		t.Error("found what is not there")
	}
}
