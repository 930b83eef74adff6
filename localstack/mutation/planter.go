package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// guardWords are the words of this field by which a comparison or a truth value
// is known to be a guard: of fences, of deadlines and leases, of write ids, of
// what is over, and of how a store refuses.
var guardWords = regexp.MustCompile(`(?i)generation|epoch|attempt|version|write_?id|etag|lease|receipt|fence|stale|final|finished|` +
	`expire|deadline|touched|started|visible|lapsed|claimable|deaths|dead_?letter|closed|revoked|holder|activation|\bseq|\bstep|created|` +
	`nonce|former|marker|\bm\.key|stamp|digest|hash|token|valid\(|allows|actsas|mayact|bound\b|retirable|exhausted|recognise|replayed|` +
	`errLost|errConflict|errAbsent|errUnchanged|conditionFailed|conflicted|guess|until|known`)

// A planter puts switches into one file.
type planter struct {
	tree   *tree
	target *target
	path   string // from the module's root
	source []byte
	files  *token.FileSet
	info   *types.Info

	function string
	names    map[string]int // how many mutants have a name
	parents  []ast.Node
	done     map[ast.Expr]bool // truth values that belong to a chain
	edits    []edit
}

// An edit puts a text into the place of a part of the source. Of those at one
// place the lower rank comes first.
type edit struct {
	from, to int
	rank     int
	text     string
}

// replaces is the rank of an edit that takes text away: what wraps that text
// comes before it.
const replaces = math.MaxInt

func (p *planter) file(f *ast.File) {
	p.done = map[ast.Expr]bool{}
	for _, declaration := range f.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			p.function = functionName(d)
			ast.Inspect(d, p.visit)
		case *ast.GenDecl:
			if d.Tok == token.VAR {
				p.function = "var"
				ast.Inspect(d, p.visit)
			}
		}
	}
}

func functionName(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	receiver := d.Recv.List[0].Type
	if star, is := receiver.(*ast.StarExpr); is {
		receiver = star.X
	}
	if generic, is := receiver.(*ast.IndexExpr); is {
		receiver = generic.X
	}
	if name, is := receiver.(*ast.Ident); is {
		return name.Name + "." + d.Name.Name
	}
	return d.Name.Name
}

func (p *planter) visit(n ast.Node) bool {
	if n == nil {
		p.parents = p.parents[:len(p.parents)-1]
		return true
	}
	deeper := true
	if e, is := n.(ast.Expr); is {
		deeper = p.expression(e)
	}
	if spec, is := n.(*ast.GenDecl); is && spec.Tok == token.CONST {
		deeper = false
	}
	if deeper {
		p.parents = append(p.parents, n)
	}
	return deeper
}

func (p *planter) parent() ast.Node {
	if len(p.parents) == 0 {
		return nil
	}
	return p.parents[len(p.parents)-1]
}

// expression plants at one expression and tells whether to look into it.
func (p *planter) expression(e ast.Expr) bool {
	value, known := p.info.Types[e]
	if !known || !value.IsValue() || p.isNoRead(e) {
		return true
	}
	if p.target.folder == "ddb" && isText(value.Type) && p.condition(e) {
		return false
	}
	if value.Value != nil {
		return false // a constant
	}
	switch {
	case isTruth(value.Type) && !p.done[e]:
		p.truth(e, p.placeOf(e))
	case p.isPlain(e):
		return true
	}
	p.number(e)
	p.precondition(e)
	p.transactionItem(e, value.Type)
	return true
}

// isNoRead tells whether a name is only named: a field, a key, what is assigned
// to.
func (p *planter) isNoRead(e ast.Expr) bool {
	switch parent := p.parent().(type) {
	case *ast.SelectorExpr:
		return parent.Sel == e
	case *ast.KeyValueExpr:
		return parent.Key == e
	case *ast.AssignStmt:
		return slices.Contains(parent.Lhs, e)
	case *ast.RangeStmt:
		return parent.Key == e || parent.Value == e
	case *ast.ValueSpec:
		return !slices.Contains(parent.Values, e)
	}
	return false
}

func (p *planter) isPlain(e ast.Expr) bool {
	switch e.(type) {
	case *ast.Ident, *ast.SelectorExpr, *ast.BasicLit:
		return true
	}
	return false
}

// A place is where a truth value stands: what it takes to break the guard.
type place int

const (
	conjunct    place = iota // of a conjunction: broken when it always holds
	alternative              // of a disjunction: broken when it never holds
	branch                   // the whole condition of a branch: broken when it is never taken
	answer                   // assigned, returned or passed: broken either way
)

func (p *planter) placeOf(e ast.Expr) place {
	switch parent := p.parent().(type) {
	case *ast.IfStmt:
		if parent.Cond == e {
			return branch
		}
	case *ast.ForStmt:
		if parent.Cond == e {
			return branch
		}
	case *ast.CaseClause:
		return branch
	}
	return answer
}

// truth plants at the guards of a truth value.
func (p *planter) truth(e ast.Expr, at place) {
	p.done[e] = true
	switch e := e.(type) {
	case *ast.ParenExpr:
		p.truth(e.X, at)
		return
	case *ast.BinaryExpr:
		if e.Op == token.LAND || e.Op == token.LOR {
			part := conjunct
			if e.Op == token.LOR {
				part = alternative
			}
			p.truth(e.X, part)
			p.truth(e.Y, part)
			return
		}
	case *ast.UnaryExpr:
		if inner, is := e.X.(*ast.ParenExpr); is {
			p.truth(inner, answer)
			return
		}
		p.done[e.X] = true
	}
	if !p.isGuard(e, at) {
		return
	}
	text := p.textOf(e)
	var forced []bool
	var what []string
	switch at {
	case conjunct:
		forced, what = []bool{true}, []string{"drop "}
	case alternative:
		forced, what = []bool{false}, []string{"drop alternative "}
	case branch:
		forced, what = []bool{false}, []string{"never "}
	case answer:
		forced, what = []bool{true, false}, []string{"always ", "never "}
	}
	for i, to := range forced {
		p.wrap(e, fmt.Sprintf("mutForce(%d, %v, ", p.add(what[i]+text), to))
	}
	p.edge(e, text)
}

// isGuard tells guards from what only steers.
func (p *planter) isGuard(e ast.Expr, at place) bool {
	comparison, is := e.(*ast.BinaryExpr)
	if !is {
		return guardWords.MatchString(p.textOf(e)) && (at != answer || !p.isPlain(e))
	}
	if p.isNil(comparison.X) || p.isNil(comparison.Y) {
		return false
	}
	if p.isZero(comparison.X) || p.isZero(comparison.Y) {
		return p.isFence(comparison.X) && at != answer // a size, or a text that is there or not
	}
	return p.isFence(comparison.X) || guardWords.MatchString(p.textOf(e))
}

// isZero tells whether a value stands for "not set": 0 or the empty text.
func (p *planter) isZero(e ast.Expr) bool {
	value := p.info.Types[e].Value
	return value != nil && (value.ExactString() == "0" || value.ExactString() == `""`)
}

func (p *planter) isNil(e ast.Expr) bool {
	value := p.info.Types[e]
	return value.IsNil()
}

// isFence tells whether a value is of a type that fences, moments and lengths of
// time have. Sizes and positions are of type int.
func (p *planter) isFence(e ast.Expr) bool {
	basic, is := p.info.Types[e].Type.Underlying().(*types.Basic)
	return is && basic.Kind() == types.Int64
}

var edges = map[token.Token]struct{ call, moved string }{
	token.LSS: {"mutLess", "<="},
	token.LEQ: {"mutLessEqual", "<"},
	token.GTR: {"mutGreater", ">="},
	token.GEQ: {"mutGreaterEqual", ">"},
}

// edge plants at a comparison in order.
func (p *planter) edge(e ast.Expr, text string) {
	comparison, is := e.(*ast.BinaryExpr)
	if !is {
		return
	}
	edge, is := edges[comparison.Op]
	if !is || !p.isFence(comparison.X) || p.isZero(comparison.X) || p.isZero(comparison.Y) {
		return
	}
	id := p.add(fmt.Sprintf("%s: %s for %s", text, edge.moved, comparison.Op))
	p.call(comparison, fmt.Sprintf("%s(%d, ", edge.call, id))
}

// call makes a call of a binary expression.
func (p *planter) call(e *ast.BinaryExpr, prefix string) {
	p.wrap(e, prefix)
	at := p.offset(e.OpPos)
	p.edits = append(p.edits, edit{at, at + len(e.Op.String()), replaces, ","})
}

// number plants at the greater and the lesser of two, and where a moment is one
// later or earlier.
func (p *planter) number(e ast.Expr) {
	switch e := e.(type) {
	case *ast.CallExpr:
		name, is := e.Fun.(*ast.Ident)
		if !is || len(e.Args) != 2 || name.Name != "max" && name.Name != "min" || !p.isFence(e) && !isText(p.info.Types[e].Type) {
			return
		}
		text := p.textOf(e)
		id := p.add(text + ": the first")
		p.add(text + ": the second")
		from := p.offset(e.Pos())
		p.edits = append(p.edits, edit{from, from + len("max("), replaces,
			fmt.Sprintf("mut%s%s(%d, ", strings.ToUpper(name.Name[:1]), name.Name[1:], id)})
	case *ast.BinaryExpr:
		one := p.info.Types[e.Y].Value
		if e.Op != token.ADD && e.Op != token.SUB || !p.isFence(e) || one == nil || one.Kind() != constant.Int || one.String() != "1" {
			return
		}
		call := map[token.Token]string{token.ADD: "mutPlus", token.SUB: "mutMinus"}[e.Op]
		p.call(e, fmt.Sprintf("%s(%d, ", call, p.add(p.textOf(e)+": without "+e.Op.String()+" 1")))
	}
}

// precondition plants at the conditions of a request to S3.
func (p *planter) precondition(e ast.Expr) {
	switch parent := p.parent().(type) {
	case *ast.KeyValueExpr:
		p.unconditional(parent.Key, e)
	case *ast.AssignStmt:
		if len(parent.Lhs) == 1 {
			p.unconditional(parent.Lhs[0], e)
		}
	}
}

func (p *planter) unconditional(field, value ast.Expr) {
	if selector, is := field.(*ast.SelectorExpr); is {
		field = selector.Sel
	}
	if name, is := field.(*ast.Ident); is && (name.Name == "IfMatch" || name.Name == "IfNoneMatch") && p.info.Types[value].Type.String() == "*string" {
		p.wrap(value, fmt.Sprintf("mutNone(%d, ", p.add("without "+name.Name)))
	}
}

// transactionItem plants where a transaction takes an action that another
// function makes: the action stays and its condition always holds.
func (p *planter) transactionItem(e ast.Expr, made types.Type) {
	call, is := e.(*ast.CallExpr)
	if !is || p.target.folder != "ddb" || !isTransactWriteItem(made) {
		return
	}
	if _, passedOn := p.parent().(*ast.ReturnStmt); passedOn {
		return
	}
	p.wrap(e, fmt.Sprintf("mutUnchecked(%d, ", p.add("unconditional "+p.textOf(call))))
}

// condition plants at a text that is a condition of DynamoDB.
func (p *planter) condition(e ast.Expr) bool {
	if p.isAssignment() {
		return false
	}
	mutants := mutateCondition(p.template(e), p.isKeyCondition())
	if len(mutants) == 0 {
		return false
	}
	first := 0
	broken := make([]string, len(mutants))
	for i, m := range mutants {
		id := p.add(m.what)
		if i == 0 {
			first = id
		}
		broken[i] = m.broken.code()
	}
	from, to := p.offset(e.Pos()), p.offset(e.End())
	p.edits = append(p.edits, edit{from, to, replaces,
		fmt.Sprintf("mutText(%d, %s, %s)", first, p.source[from:to], strings.Join(broken, ", "))})
	return true
}

// code is the Go expression that makes the text.
func (t template) code() string {
	parts := make([]string, len(t))
	for i, part := range t {
		if parts[i] = part.text; !part.code {
			parts[i] = strconv.Quote(part.text)
		}
	}
	return strings.Join(parts, " + ")
}

// template takes a text apart.
func (p *planter) template(e ast.Expr) template {
	if value := p.info.Types[e].Value; value != nil {
		return template{{text: constant.StringVal(value)}}
	}
	if sum, is := e.(*ast.BinaryExpr); is && sum.Op == token.ADD {
		return append(p.template(sum.X), p.template(sum.Y)...).compact()
	}
	return template{{text: p.textOf(e), code: true}}
}

// isAssignment tells whether a text belongs to the assignments of an update,
// which look like conditions.
func (p *planter) isAssignment() bool {
	for _, n := range slices.Backward(p.parents) {
		switch n := n.(type) {
		case *ast.KeyValueExpr:
			return p.textOf(n.Key) == "set" || p.textOf(n.Key) == "add"
		case *ast.CallExpr:
			if name, is := n.Fun.(*ast.Ident); is && name.Name == "append" {
				return strings.HasSuffix(p.textOf(n.Args[0]), ".set")
			}
		case *ast.FuncLit, *ast.BlockStmt:
			return false
		}
	}
	return false
}

// isKeyCondition tells whether a text is the condition of a query.
func (p *planter) isKeyCondition() bool {
	for _, n := range slices.Backward(p.parents) {
		switch n := n.(type) {
		case *ast.KeyValueExpr:
			if key := p.textOf(n.Key); key == "KeyConditionExpression" {
				return true
			}
		case *ast.CompositeLit:
			return p.isQuery(n)
		case *ast.AssignStmt:
			selector, is := n.Lhs[0].(*ast.SelectorExpr)
			return is && p.isQuery(selector.X)
		}
	}
	return false
}

func (p *planter) isQuery(e ast.Expr) bool {
	kind := p.info.Types[e].Type
	return kind != nil && strings.HasSuffix(kind.String(), "ddb.query")
}

// add names a mutant and returns its number.
func (p *planter) add(what string) int {
	name := fmt.Sprintf("%s:%s: %s", p.path, p.function, what)
	p.names[name]++
	if n := p.names[name]; n > 1 {
		name = fmt.Sprintf("%s #%d", name, n)
	}
	id := len(p.tree.mutants)
	p.tree.mutants = append(p.tree.mutants, mutant{id: id, name: name, file: p.path, target: p.target})
	return id
}

// wrap puts an expression into a call. An outer call is planted before an inner
// one.
func (p *planter) wrap(e ast.Expr, prefix string) {
	rank := len(p.edits) + 1
	from, to := p.offset(e.Pos()), p.offset(e.End())
	p.edits = append(p.edits, edit{from, from, rank, prefix}, edit{to, to, -rank, ")"})
}

func (p *planter) offset(at token.Pos) int { return p.files.Position(at).Offset }

func (p *planter) textOf(e ast.Node) string {
	text := string(p.source[p.offset(e.Pos()):p.offset(e.End())])
	return strings.Join(strings.Fields(text), " ")
}

// text is the file with its switches.
func (p *planter) text() string {
	slices.SortFunc(p.edits, func(a, b edit) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.rank, b.rank)) })
	var b strings.Builder
	at := 0
	for _, e := range p.edits {
		b.Write(p.source[at:e.from])
		b.WriteString(e.text)
		at = e.to
	}
	b.Write(p.source[at:])
	return b.String()
}

func isTruth(t types.Type) bool { return isBasic(t, types.IsBoolean) }
func isText(t types.Type) bool  { return isBasic(t, types.IsString) }

func isBasic(t types.Type, want types.BasicInfo) bool {
	basic, is := t.Underlying().(*types.Basic)
	return is && basic.Info()&want != 0
}

func isTransactWriteItem(t types.Type) bool {
	named, is := t.(*types.Named)
	return is && named.Obj().Name() == "TransactWriteItem"
}
