package control

import (
	"embed"
	"html/template"
	"net/http"
	"time"
)

//go:embed page.html
var pages embed.FS

var pageTemplate = template.Must(template.New("page.html").Funcs(template.FuncMap{
	"clock": func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") },
}).ParseFS(pages, "page.html"))

// page writes the device's own page: one document without a script, a font or
// an image from anywhere.
func page(w http.ResponseWriter, s Status) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	_ = pageTemplate.Execute(w, s) // a failed write means that the reader left
}
