package main

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// decodeConfig reads YAML into c, as far as it can be read, and names everything
// that is wrong with it.
func decodeConfig(b []byte, c any) (wrong []string) {
	if len(strings.TrimSpace(string(b))) == 0 {
		return nil
	}
	defer func() { // of the library: a tag without a value, such as "listen: !x" on two lines, is too much for it
		if recover() != nil {
			wrong = []string{"cannot be read: a tag or an alias stands where a value should"}
		}
	}()
	parsed, err := parser.ParseBytes(b, 0)
	if err != nil {
		return []string{plainYAMLError(err)}
	}
	if len(parsed.Docs) != 1 {
		return []string{"holds more than one YAML document; keep one"}
	}
	switch parsed.Docs[0].Body.(type) {
	case nil, *ast.NullNode, *ast.CommentGroupNode: // comments alone: the library would empty c, which holds the defaults
		return nil
	}
	if aliases := ast.Filter(ast.AliasType, parsed.Docs[0].Body); len(aliases) > 0 { // a few lines of them are gigabytes
		at := aliases[0].GetToken().Position
		return []string{fmt.Sprintf("line %d, column %d: an alias, which is not allowed: write the value again", at.Line, at.Column)}
	}
	known := knownKeys(reflect.TypeOf(c).Elem())
	if unknown := unknownKeys(parsed.Docs[0].Body, known); len(unknown) > 0 {
		wrong = []string{fmt.Sprintf("unknown %s %s; known: %s", plural(len(unknown), "key"), strings.Join(unknown, ", "), strings.Join(known, ", "))}
	}
	whole := yaml.UnmarshalWithOptions(b, c, yaml.Strict())
	if whole == nil {
		return nil
	}
	wrong = append(wrong, wrongValues(parsed.Docs[0].Body, reflect.ValueOf(c).Elem(), "")...) // the library stops at the first
	if len(wrong) == 0 {
		wrong = []string{plainYAMLError(whole)}
	}
	return wrong
}

// wrongValues reads what stands under each key of n that c, a struct, knows, as far as it can be
// read, and names every value that cannot, with its key behind those of in.
func wrongValues(n ast.Node, c reflect.Value, in string) (wrong []string) {
	for _, v := range mappingValues(n) {
		key := v.Key.String()
		field := fieldOf(c, key)
		if !field.IsValid() && in == "" {
			continue // unknownKeys named it
		}
		if field.IsValid() && field.Kind() == reflect.Struct && len(mappingValues(v.Value)) > 0 {
			wrong = append(wrong, wrongValues(v.Value, field, in+key+".")...)
			continue
		}
		err := yaml.NodeToValue(v, c.Addr().Interface(), yaml.Strict())
		var ofLibrary yaml.Error
		switch {
		case err == nil:
		case errors.As(err, &ofLibrary):
			wrong = append(wrong, in+key+": "+plainYAMLError(err))
		case field.IsValid(): // of whoever reads the text, which knows no line
			at := v.Value.GetToken().Position
			wrong = append(wrong, fmt.Sprintf("%s%s: line %d, column %d: want %s here", in, key, at.Line, at.Column, kindWanted(field.Type())))
		}
	}
	return wrong
}

// fieldOf gives the field of a struct that a key of its YAML is for; none where there is none.
func fieldOf(c reflect.Value, key string) reflect.Value {
	for i := range c.NumField() {
		if key != "-" && c.Type().Field(i).Tag.Get("yaml") == key {
			return c.Field(i)
		}
	}
	return reflect.Value{}
}

func unknownKeys(n ast.Node, known []string) []string {
	var out []string
	for _, v := range mappingValues(n) {
		if key := v.Key.String(); !slices.Contains(known, key) {
			at := v.Key.GetToken().Position
			out = append(out, fmt.Sprintf("%q (line %d)", key, at.Line))
		}
	}
	return out
}

func mappingValues(n ast.Node) []*ast.MappingValueNode {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}
	}
	return nil
}

func knownKeys(t reflect.Type) []string {
	var out []string
	for i := range t.NumField() {
		if key := t.Field(i).Tag.Get("yaml"); key != "" && key != "-" {
			out = append(out, key)
		}
	}
	return out
}

// plainYAMLError makes one line of the library's picture of the source, which
// would also repeat the file's content.
func plainYAMLError(err error) string {
	var y yaml.Error
	if !errors.As(err, &y) {
		return strings.Join(strings.Fields(err.Error()), " ")
	}
	message := y.GetMessage()
	var wrong *yaml.TypeError
	if errors.As(err, &wrong) {
		message = "want " + kindWanted(wrong.DstType) + " here" // the library speaks of this program's fields
	}
	if t := y.GetToken(); t != nil && t.Position != nil {
		return fmt.Sprintf("line %d, column %d: %s", t.Position.Line, t.Position.Column, message)
	}
	return message
}

// kindWanted names what a setting takes.
func kindWanted(t reflect.Type) string {
	if t == nil {
		return "another value"
	}
	if t == reflect.TypeFor[time.Duration]() {
		return "a duration, such as 60s"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list, such as [a, b],"
	case reflect.Struct, reflect.Map:
		return "keys with values"
	case reflect.String:
		return "text"
	}
	return "a number"
}
