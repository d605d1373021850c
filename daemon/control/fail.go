package control

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
)

// errorShape is an error as the edge has it.
type errorShape struct {
	Message   string `json:"message"`
	Type      string `json:"type"`
	Code      string `json:"code"`
	RequestID string `json:"request_id"`
}

// kinds are code and type of a status, in the words of the edge's errors where it has
// that status.
var kinds = map[int]errorShape{
	http.StatusBadRequest:          {Code: "invalid_request", Type: "invalid_request_error"},
	http.StatusUnauthorized:        {Code: "unauthorized", Type: "authentication_error"},
	http.StatusForbidden:           {Code: "forbidden", Type: "permission_error"},
	http.StatusNotFound:            {Code: "not_found", Type: "invalid_request_error"},
	http.StatusMethodNotAllowed:    {Code: "method_not_allowed", Type: "invalid_request_error"},
	http.StatusUnprocessableEntity: {Code: "invalid_request", Type: "invalid_request_error"},
	http.StatusBadGateway:          {Code: "upstream_error", Type: "upstream_error"},
}

// fail answers with an error of a status that kinds has.
func fail(w http.ResponseWriter, status int, message string) {
	e := kinds[status]
	e.Message, e.RequestID = message, "req-"+rand.Text()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Chordwheel-Request-Id", e.RequestID)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]errorShape{"error": e}) // the reader left: nothing to be done
}
