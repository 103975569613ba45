package archtest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the API golden instead of comparing with it")

const golden = "api/worklease.txt"

// What a user can see must not change unnoticed: each exported feature is one line of the golden, so
// that a change of the surface is a line in the review.
func TestAPI(t *testing.T) {
	top, _ := moduleFiles(t)
	got := surface(t, top)
	file := filepath.Join(top, golden)
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(strings.Join(got, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	data, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSpace(strings.ReplaceAll(string(data), "\r\n", "\n")), "\n")
	if diff := difference(want, got); len(diff) > 0 {
		t.Errorf("the public surface differs from %s; if that is meant, run make api and commit the result:\n%s",
			golden, strings.Join(diff, "\n"))
	}
}

// difference returns the lines of only one side, in the order of the golden.
func difference(want, got []string) []string {
	var lines []string
	for _, line := range want {
		if line != "" && !slices.Contains(got, line) {
			lines = append(lines, "- "+line)
		}
	}
	for _, line := range got {
		if !slices.Contains(want, line) {
			lines = append(lines, "+ "+line)
		}
	}
	slices.SortStableFunc(lines, func(a, b string) int { return cmp.Compare(a[2:], b[2:]) })
	return lines
}

// surface returns one line for each exported feature of the shipped packages, sorted. It reads what
// the compiler exports rather than the source, so that inferred types, constants and promoted methods
// are what a user's compiler sees.
func surface(t *testing.T, top string) []string {
	type listed struct {
		ImportPath, Name, Export string
		DepOnly                  bool
		GoFiles                  []string
	}
	// Examples are main packages; they are not to be stamped with the state of a repository.
	cmd := exec.CommandContext(t.Context(), "go", "list", "-buildvcs=false", "-export", "-deps",
		"-json=ImportPath,Name,Export,DepOnly,GoFiles", "./...")
	cmd.Dir = top
	cmd.Stderr = new(bytes.Buffer)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, cmd.Stderr)
	}

	exports := make(map[string]string)
	var shipped []string
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var pkg listed
		if err := dec.Decode(&pkg); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[pkg.ImportPath] = pkg.Export
		if !pkg.DepOnly && len(pkg.GoFiles) > 0 && isShipped(pkg.ImportPath, pkg.Name) {
			shipped = append(shipped, pkg.ImportPath)
		}
	}

	imp := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	var lines []string
	for _, path := range shipped {
		pkg, err := imp.Import(path)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, features(pkg)...)
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

func isShipped(path, name string) bool {
	return name != "main" && !slices.Contains(strings.Split(path, "/"), "internal") &&
		!strings.HasPrefix(path, modulePath+"/examples/")
}

func features(pkg *types.Package) []string {
	var lines []string
	prefix := strings.TrimPrefix(pkg.Path(), modulePath[:strings.LastIndex(modulePath, "/")+1]) + ": "
	add := func(format string, args ...any) { lines = append(lines, prefix+fmt.Sprintf(format, args...)) }

	for _, name := range pkg.Scope().Names() {
		obj := pkg.Scope().Lookup(name)
		if !obj.Exported() {
			continue
		}
		switch obj := obj.(type) {
		case *types.Const:
			add("const %s %s = %s", name, typeString(pkg, obj.Type()), obj.Val().ExactString())
		case *types.Var:
			add("var %s %s", name, typeString(pkg, obj.Type()))
		case *types.Func:
			add("func %s%s", name, signature(pkg, obj))
		case *types.TypeName:
			for _, feature := range typeFeatures(pkg, obj) {
				add("%s", feature)
			}
		}
	}
	return lines
}

func typeFeatures(pkg *types.Package, obj *types.TypeName) []string {
	name := obj.Name()
	if alias, ok := obj.Type().(*types.Alias); ok {
		return []string{fmt.Sprintf("type %s = %s", name+typeParams(pkg, alias.TypeParams()), typeString(pkg, alias.Rhs()))}
	}
	named := obj.Type().(*types.Named)
	head := "type " + name + typeParams(pkg, named.TypeParams())
	var lines []string

	switch under := named.Underlying().(type) {
	case *types.Struct:
		lines = append(lines, head+" struct")
		for field := range under.Fields() {
			switch {
			case !field.Exported():
			case field.Embedded():
				lines = append(lines, fmt.Sprintf("type %s struct, embedded %s", name, typeString(pkg, field.Type())))
			default:
				lines = append(lines, fmt.Sprintf("type %s struct, %s %s", name, field.Name(), typeString(pkg, field.Type())))
			}
		}
	case *types.Interface:
		if !under.IsMethodSet() {
			return append(lines, head+" "+typeString(pkg, under))
		}
		lines = append(lines, head+" interface")
		for method := range under.Methods() {
			if method.Exported() {
				lines = append(lines, fmt.Sprintf("type %s interface, %s%s", name, method.Name(), signature(pkg, method)))
			} else { // nobody else can implement it
				lines = append(lines, fmt.Sprintf("type %s interface, unexported methods", name))
			}
		}
		return lines
	default:
		lines = append(lines, head+" "+typeString(pkg, under))
	}

	ofValue := types.NewMethodSet(named)
	for selection := range types.NewMethodSet(types.NewPointer(named)).Methods() {
		method := selection.Obj().(*types.Func)
		if !method.Exported() {
			continue
		}
		receiver := name
		if ofValue.Lookup(pkg, method.Name()) == nil {
			receiver = "*" + name
		}
		lines = append(lines, fmt.Sprintf("method (%s) %s%s", receiver, method.Name(), signature(pkg, method)))
	}
	return lines
}

func typeParams(pkg *types.Package, params *types.TypeParamList) string {
	if params.Len() == 0 {
		return ""
	}
	var list []string
	for param := range params.TypeParams() {
		list = append(list, param.Obj().Name()+" "+typeString(pkg, param.Constraint()))
	}
	return "[" + strings.Join(list, ", ") + "]"
}

func signature(pkg *types.Package, f *types.Func) string {
	return strings.TrimPrefix(typeString(pkg, f.Type()), "func")
}

func typeString(pkg *types.Package, t types.Type) string {
	return types.TypeString(t, func(other *types.Package) string {
		if other == pkg {
			return ""
		}
		return other.Name()
	})
}
