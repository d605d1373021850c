package catalog

import "github.com/goccy/go-yaml/ast"

// Services reads a list of providers that stands in another file: the
// `adapters:` of a device's configuration, in the catalogue's form. Places in
// faults are those of the whole file called name. The error is an [*Invalid].
func Services(name string, n ast.Node) ([]Provider, error) {
	r := &reader{}
	var services []Provider
	r.list(n, "adapters", maxNames, func(n ast.Node) { services = append(services, r.provider(n)) })
	r.unique(n, "adapter", "name")
	if len(r.problems) > 0 {
		return nil, &Invalid{File: name, Problems: r.sorted()}
	}
	return services, nil
}
