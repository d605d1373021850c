package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// Limits on a model list.
const (
	maxModelList = 1 << 20
	maxModels    = 1000
	modelsWait   = 5 * time.Second
)

// ErrKey is wrapped by the error of a model list that was refused for the key.
var ErrKey = errors.New("the key was refused")

// Models asks the server at endpoint for the ids of its models: without a key
// this is how local servers are found and their health is seen, with one how its
// owner tries it. It takes at most
// 5 s and 1 MiB, and gives at most 1,000 ids, in the server's order. A server
// without models gives none and no error. Ids that are no names (empty, over
// 256 bytes, with control characters) are left out.
func (a *Adapter) Models(ctx context.Context, endpoint string, key chain.Secret) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, modelsWait)
	defer cancel()
	u, err := join(endpoint, modelsPath)
	if err != nil {
		return nil, err
	}
	r := &http.Request{Method: http.MethodGet, URL: u, Host: u.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Accept": acceptPlain, "Accept-Encoding": identity, "User-Agent": userAgent}}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key.Reveal())
	}
	resp, err := a.transport.roundTrip(r.WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("models of %s: %w", chain.Clip(endpoint), err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden {
		return nil, fmt.Errorf("models of %s: %w (%d)", chain.Clip(endpoint), ErrKey, resp.StatusCode)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("models of %s: the server answered %d", chain.Clip(endpoint), resp.StatusCode)
	}
	text, err := body(resp, maxModelList)
	if err != nil {
		return nil, fmt.Errorf("models of %s: %w", chain.Clip(endpoint), err)
	}
	b, err := io.ReadAll(text)
	if err != nil {
		return nil, fmt.Errorf("models of %s: %w", chain.Clip(endpoint), err)
	}
	ids, err := readModels(b)
	if err != nil {
		return nil, fmt.Errorf("models of %s: %w", chain.Clip(endpoint), err)
	}
	return ids, nil
}

// readModels reads a model list: {"data":[{"id":…}]}.
func readModels(b []byte) ([]string, error) {
	var list struct {
		Data *[]struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.Unmarshal(b, &list); err != nil || list.Data == nil {
		return nil, errNotList
	}
	var ids []string
	for _, m := range *list.Data {
		if named(m.ID) && len(ids) < maxModels {
			ids = append(ids, m.ID)
		}
	}
	return ids, nil
}

var errNotList = fmt.Errorf("the answer is no model list: %w", errBroken)

func named(id string) bool {
	for _, r := range id {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == 0xfffd {
			return false
		}
	}
	return id != "" && len(id) <= 256
}
