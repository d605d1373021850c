package main_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// row is one line of the import table.
type row struct {
	packages []string // whom it binds
	ours     []string // packages of the module they may import; nil: none
	others   []string // packages from elsewhere they may import; nil: any. The standard library always
	direct   []string // must not be among their imports
	deep     []string // must not be among all that their imports bring in
	pure     bool     // no goroutine and no clock of their own
	why      string   // the reason, shown with every complaint
}

// mark is a pattern that must not occur in any file, and what it betrays.
type mark struct {
	pattern, what string
	needs         []string // texts of which a file with the pattern has one: to look for them is much faster
}

// listed is what the go command says about one package.
type listed struct {
	ImportPath                               string
	Imports, TestImports, XTestImports, Deps []string
}

const (
	maxLines     = 600     // of a file written by hand
	maxTestLines = 900     // of tests, where tables are long and read from the top
	maxText      = 4 << 20 // bytes of a file that is searched for marks
)

// drawers are names that say nothing of what is inside.
var drawers = []string{"util", "utils", "common", "helper", "helpers", "misc", "types", "models", "base", "shared", "manager"}

// matches reports whether the path is named by one of the patterns.
func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if p == "..." {
			return true
		}
		if stem, ok := strings.CutSuffix(p, "/..."); ok {
			return name == stem || strings.HasPrefix(name, stem+"/")
		}
		return name == p
	})
}

// rowOf finds the first row that binds a package.
func rowOf(table []row, name string) (row, bool) {
	i := slices.IndexFunc(table, func(r row) bool { return matches(r.packages, name) })
	if i < 0 {
		return row{}, false
	}
	return table[i], true
}

// checkImports returns one line for each breach of the table.
func checkImports(table []row, packages []listed) []string {
	var out []string
	for _, p := range packages {
		name, ok := own(p.ImportPath)
		if !ok {
			continue
		}
		r, ok := rowOf(table, name)
		if !ok {
			out = append(out, fmt.Sprintf("%s has no row in the import table: add it there with the reason", name))
			continue
		}
		complain := func(format string, args ...any) {
			out = append(out, fmt.Sprintf("%s %s: %s", name, fmt.Sprintf(format, args...), r.why))
		}
		for _, imp := range p.Imports {
			checkImport(r, name, imp, complain)
		}
		for _, dep := range p.Deps {
			if matches(r.deep, dep) && !slices.Contains(p.Imports, dep) {
				complain("brings in %s through another package", dep)
			}
		}
		for _, imp := range join(p.TestImports, p.XTestImports) {
			if apart(name, imp) {
				complain("imports %s in a test", imp)
			}
		}
	}
	return out
}

// checkImport judges one import of code that ships.
func checkImport(r row, name, imp string, complain func(string, ...any)) {
	if mine, ok := own(imp); ok {
		switch {
		case matches(support, mine) && !matches(support, name):
			complain("imports %s, which exists for tests", imp)
		case !matches(r.ours, mine):
			complain("imports %s", imp)
		}
		return
	}
	switch {
	case matches(r.direct, imp) || matches(r.deep, imp):
		complain("imports %s", imp)
	case imp == "testing" && (!matches(support, name) || name == "mesh/sim"):
		complain("imports %s in code that ships", imp)
	case r.others != nil && foreign(imp) && !matches(r.others, imp):
		complain("imports %s", imp)
	}
}

// own cuts the module's path from an import path.
func own(imp string) (string, bool) { return strings.CutPrefix(imp, module+"/") }

// foreign reports whether an import path is outside the standard library.
func foreign(imp string) bool {
	first, _, _ := strings.Cut(imp, "/")
	return strings.Contains(first, ".")
}

// apart reports whether a test of the package must not reach for the import:
// hub and device meet in cmd only, also in tests.
func apart(name, imp string) bool {
	mine, ok := own(imp)
	return ok && (matches([]string{"daemon/..."}, name) && matches([]string{"orchestrator/..."}, mine) ||
		matches([]string{"orchestrator/..."}, name) && matches([]string{"daemon/..."}, mine))
}

// checkSources returns one line for each breach of the rules about files,
// folders, comments, goroutines and clocks in the tree.
func checkSources(tree fs.FS, table []row, marks []mark) []string {
	var out []string
	folders := map[string][]*source{}
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if skipped(name) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil // a worktree has a file of that name
		}
		if d.IsDir() {
			if slices.Contains(drawers, path.Base(name)) {
				out = append(out, fmt.Sprintf("folder %s: a drawer says nothing of what is inside; use the word of the thing", name))
			}
			return nil
		}
		text, err := readText(tree, name)
		if err != nil || text == "" {
			return err
		}
		out = append(out, findMarks(name, text, marks)...)
		if path.Ext(name) == ".md" {
			out = append(out, checkLinks(tree, name, text)...)
		}
		if path.Ext(name) != ".go" || strings.Contains(name, "testdata/") {
			return nil
		}
		s, err := parse(name, text)
		if err != nil {
			out = append(out, err.Error())
			return nil
		}
		folders[path.Dir(name)] = append(folders[path.Dir(name)], s)
		return nil
	})
	if err != nil {
		return append(out, err.Error())
	}
	for name, sources := range folders {
		r, _ := rowOf(table, name)
		out = append(out, checkFolder(name, sources, r)...)
	}
	slices.Sort(out)
	return out
}

func skipped(name string) bool {
	switch path.Base(name) {
	case ".git", "node_modules", "bin", "dist":
		return true
	}
	return false
}

// readText gives a file's content, or "" where it is no text.
func readText(tree fs.FS, name string) (string, error) {
	info, err := fs.Stat(tree, name)
	if err != nil || info.Size() > maxText || !info.Mode().IsRegular() {
		return "", err
	}
	raw, err := fs.ReadFile(tree, name)
	if err != nil || slices.Contains(raw[:min(len(raw), 8000)], 0) {
		return "", err
	}
	return string(raw), nil
}

func findMarks(name, text string, marks []mark) []string {
	var out []string
	for _, m := range marks {
		if !slices.ContainsFunc(m.needs, func(s string) bool { return strings.Contains(text, s) }) {
			continue
		}
		re := regexp.MustCompile(`(?m)` + m.pattern)
		if at := re.FindStringIndex(text); at != nil {
			line := 1 + strings.Count(text[:at[0]], "\n")
			out = append(out, fmt.Sprintf("%s:%d: %q is %s", name, line, strings.TrimSpace(text[at[0]:at[1]]), m.what))
		}
	}
	return out
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// checkLinks follows the links of a page that lead into the repository.
func checkLinks(tree fs.FS, name, text string) []string {
	var out []string
	for _, m := range link.FindAllStringSubmatch(text, -1) {
		target, _, _ := strings.Cut(m[1], "#")
		if target == "" || strings.Contains(target, "://") {
			continue
		}
		if _, err := fs.Stat(tree, path.Join(path.Dir(name), target)); err != nil {
			out = append(out, fmt.Sprintf("%s: links to %s, which is not there", name, m[1]))
		}
	}
	return out
}

// source is one parsed Go file.
type source struct {
	name      string
	lines     int
	fset      *token.FileSet
	file      *ast.File
	generated bool
}

func parse(name, text string) (*source, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	return &source{name: name, lines: strings.Count(text, "\n"), fset: fset, file: file, generated: ast.IsGenerated(file)}, nil
}

func (s *source) test() bool { return strings.HasSuffix(s.name, "_test.go") }

// most is how many lines the file may have.
func (s *source) most() int {
	if s.test() {
		return maxTestLines
	}
	return maxLines
}

func (s *source) at(n ast.Node) string {
	return fmt.Sprintf("%s:%d", s.name, s.fset.Position(n.Pos()).Line)
}

func checkFolder(name string, sources []*source, r row) []string {
	var out []string
	comment, pkg, bubble := "", "", inBubble(sources)
	for _, s := range sources {
		if most := s.most(); s.lines > most && !s.generated {
			out = append(out, fmt.Sprintf("%s has %d lines, at most %d: split it by the nouns it holds", s.name, s.lines, most))
		}
		if s.test() {
			if !bubble {
				out = append(out, checkSleeps(s)...)
			}
			continue
		}
		pkg = s.file.Name.Name
		if s.file.Doc != nil {
			comment = s.file.Doc.Text()
		}
		if !s.generated {
			out = append(out, checkDocs(s)...)
		}
		if r.pure {
			out = append(out, checkPure(s, r.why)...)
		}
	}
	if pkg != "" {
		out = append(out, checkComment(name, pkg, comment)...)
	}
	return out
}

// checkComment wants a package comment that begins as the go command's tools
// expect, and that is more than the name again.
func checkComment(folder, pkg, comment string) []string {
	begins := "Package " + pkg + " "
	if pkg == "main" {
		begins = "Command " + path.Base(folder) + " "
	}
	switch {
	case comment == "":
		return []string{fmt.Sprintf("package %s has no comment: say what it owns and what it must not know", folder)}
	case !strings.HasPrefix(comment, begins):
		return []string{fmt.Sprintf("the comment of package %s begins with %q, not %q", folder, strings.SplitN(comment, "\n", 2)[0], begins)}
	case len(comment) < len(begins)+60:
		return []string{fmt.Sprintf("the comment of package %s is only a name: say what it owns and what it must not know", folder)}
	}
	return nil
}

// plain are methods whose contract is an interface of the standard library.
var plain = []string{
	"String", "Error", "Unwrap", "Is", "As", "Format", "GoString", "LogValue", "Len", "Less", "Swap", "Read", "Write", "Close",
	"MarshalText", "UnmarshalText", "MarshalJSON", "UnmarshalJSON", "MarshalCBOR", "UnmarshalCBOR", "MarshalBinary", "UnmarshalBinary",
}

// checkDocs wants a comment at every exported name.
func checkDocs(s *source) []string {
	var out []string
	missing := func(n ast.Node, name string) {
		out = append(out, fmt.Sprintf("%s: exported %s has no comment: say its contract (units, ranges, errors, who may call it)", s.at(n), name))
	}
	for _, decl := range s.file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Doc == nil && d.Name.IsExported() && exportedReceiver(d) && !(d.Recv != nil && slices.Contains(plain, d.Name.Name)) {
				missing(d, d.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				checkSpec(d, spec, missing)
			}
		}
	}
	return out
}

func checkSpec(d *ast.GenDecl, spec ast.Spec, missing func(ast.Node, string)) {
	switch sp := spec.(type) {
	case *ast.TypeSpec:
		if sp.Name.IsExported() && d.Doc == nil && sp.Doc == nil && sp.Comment == nil {
			missing(sp, sp.Name.Name)
		}
	case *ast.ValueSpec:
		for _, n := range sp.Names {
			if n.IsExported() && d.Doc == nil && sp.Doc == nil && sp.Comment == nil {
				missing(n, n.Name)
			}
		}
	}
}

func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	t := d.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return false
		}
	}
}

// clock are the names of package time that look at a clock or wait for one.
var clock = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"}

// checkPure finds goroutines and clocks.
func checkPure(s *source, why string) []string {
	var out []string
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.GoStmt:
			out = append(out, fmt.Sprintf("%s: starts a goroutine: %s", s.at(x), why))
		case *ast.SelectorExpr:
			if id, ok := x.X.(*ast.Ident); ok && id.Name == "time" && slices.Contains(clock, x.Sel.Name) {
				out = append(out, fmt.Sprintf("%s: has a clock of its own (time.%s), take the time as an argument: %s", s.at(x), x.Sel.Name, why))
			}
		}
		return true
	})
	return out
}

// bubbles are packages that tests are put into virtual time with.
var bubbles = []string{`"testing/synctest"`, `"` + module + `/mesh/sim"`}

// inBubble reports whether one of a folder's tests uses virtual time: its
// helpers are then taken to run there too.
func inBubble(sources []*source) bool {
	return slices.ContainsFunc(sources, func(s *source) bool {
		return s.test() && slices.ContainsFunc(s.file.Imports, func(imp *ast.ImportSpec) bool { return slices.Contains(bubbles, imp.Path.Value) })
	})
}

// checkSleeps finds tests that wait for real time to pass: in a bubble of
// virtual time it costs nothing, outside it makes a slow test or a flaky one.
func checkSleeps(s *source) []string {
	var out []string
	ast.Inspect(s.file, func(n ast.Node) bool {
		if x, ok := n.(*ast.SelectorExpr); ok && x.Sel.Name == "Sleep" {
			if id, ok := x.X.(*ast.Ident); ok && id.Name == "time" {
				out = append(out, fmt.Sprintf("%s: sleeps in a test: wait for an event, or use testing/synctest", s.at(x)))
			}
		}
		return true
	})
	return out
}
