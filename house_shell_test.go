package house

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/types"
	"slices"
	"strings"
)

// occupied are the functions that listen on a free port in order to keep others from it, by path:name, and why.
var occupied = map[string]string{
	"controlplane/supervise/supervise_test.go:TestOccupiedPort": "the port is not free for the control plane",
	"internal/cli/cli_test.go:TestFails":                        "the port is not free for berth up",
}

// checkPorts finds listeners on port 0 from which nothing is served: they are asked for their address and closed.
func checkPorts(tr *tree) (out []string) {
	for _, f := range tr.files {
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil || occupied[f.path+":"+fn.Name.Name] != "" {
				continue
			}
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				assign, ok := n.(*ast.AssignStmt)
				if !ok || !listensOnZero(assign) {
					return true
				}
				name, ok := assign.Lhs[0].(*ast.Ident)
				if ok && closedUnused(fn.Body, name.Name) {
					out = append(out, fmt.Sprintf("%s: %s listens on port 0, and is closed to have the number", tr.at(assign), name.Name))
				}
				return true
			})
		}
	}
	return out
}

// listensOnZero reports whether a listener on any free port is assigned.
func listensOnZero(assign *ast.AssignStmt) bool {
	call, ok := assign.Rhs[0].(*ast.CallExpr)
	if !ok {
		return false
	}
	called, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !strings.HasPrefix(called.Sel.Name, "Listen") {
		return false
	}
	return slices.ContainsFunc(call.Args, func(arg ast.Expr) bool {
		literal, ok := arg.(*ast.BasicLit)
		return ok && strings.HasSuffix(literal.Value, `:0"`)
	})
}

// closedUnused reports whether a listener is closed, and used for nothing else but its address.
func closedUnused(body *ast.BlockStmt, name string) bool {
	uses, addresses, closes := 0, 0, 0
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				if id, ok := left.(*ast.Ident); ok && id.Name == name {
					uses-- // an assignment is no use
				}
			}
		case *ast.SelectorExpr:
			if types.ExprString(n.X) != name {
				return true
			}
			switch n.Sel.Name {
			case "Addr":
				addresses++
			case "Close":
				closes++
			}
		case *ast.Ident:
			if n.Name == name {
				uses++
			}
		}
		return true
	})
	return closes > 0 && uses == addresses+closes
}

// twins are files that two modules need, of which neither may import the other: each says what it is a copy of.
var twins = map[string]string{"controlplane/supervise/reserve.go": "internal/wire/listen/reserve.go"}

// checkTwins finds copies that differ by more than the name of their package.
func checkTwins(tr *tree) (out []string) {
	body := func(path string) ([]byte, bool) {
		for _, f := range tr.files {
			if f.path == path {
				return bytes.Join([][]byte{f.src[:f.ast.Package-f.ast.FileStart], f.src[f.ast.Name.End()-f.ast.FileStart:]}, nil), true
			}
		}
		return nil, false
	}
	for copied, original := range twins {
		a, found := body(copied)
		b, also := body(original)
		if (found || also) && !bytes.Equal(a, b) {
			out = append(out, fmt.Sprintf("%s is not what %s is", copied, original))
		}
	}
	slices.Sort(out)
	return out
}
