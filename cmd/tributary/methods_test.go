package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// maxMethods is how many methods a type has at most. One that needs more owns more than one thing.
const maxMethods = 25

// TestTypesHaveFewMethods holds that no type of the program has more than [maxMethods]. Tests and their kits, the
// packages whose names end in test, are not counted: a generator of logs has a method for each record that it writes.
func TestTypesHaveFewMethods(t *testing.T) {
	t.Parallel()
	methods := make(map[string]int) // of a type, by its package and name
	err := filepath.WalkDir(filepath.Join("..", ".."), func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == ".git" || strings.HasSuffix(d.Name(), "test")):
			return fs.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv != nil {
				methods[filepath.Dir(path)+"."+typeOf(f.Recv.List[0].Type)]++
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(methods) < 100 {
		t.Errorf("%d types with methods are found: the test does not see the module", len(methods))
	}
	for name, n := range methods {
		if n > maxMethods {
			t.Errorf("%s has %d methods, the limit is %d: what of its state belongs together is a type of its own", name, n, maxMethods)
		}
	}
}

// typeOf returns the name of the type of a receiver.
func typeOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeOf(e.X)
	case *ast.IndexExpr:
		return typeOf(e.X)
	case *ast.IndexListExpr:
		return typeOf(e.X)
	case *ast.Ident:
		return e.Name
	default:
		return "?"
	}
}
