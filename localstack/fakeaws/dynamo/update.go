package dynamo

import (
	"slices"
	"strings"
)

// A verb is the section of an update expression that an action stands in.
type verb uint8

const (
	verbSet verb = iota
	verbRemove
	verbAdd
	verbDelete
)

// An action changes one path of an item.
type action struct {
	verb    verb
	path    path
	operand *node // nil for REMOVE
}

func errInvalidPath() *apiError {
	return validationError("The document path provided in the update expression is invalid for update")
}

func errOperandType() *apiError {
	return validationError("An operand in the update expression has an incorrect data type")
}

func errMissingAttribute() *apiError {
	return validationError("The provided expression refers to an attribute that does not exist in the item")
}

// checkActions refuses what is wrong with an update whatever the item is.
func (b *bound) checkActions() error {
	paths := make([]path, len(b.actions))
	for i, a := range b.actions {
		paths[i] = a.path
		if err := b.checkAction(a); err != nil {
			return err
		}
	}
	return b.checkDisjoint(paths)
}

func (b *bound) checkAction(a action) error {
	switch a.verb {
	case verbSet:
		return b.checkAssigned(a.operand)
	case verbAdd, verbDelete:
		k := b.valueOf[a.operand.value].kind
		if k.isSet() || k == kindNumber && a.verb == verbAdd {
			return nil
		}
		name := "ADD"
		if a.verb == verbDelete {
			name = "DELETE"
		}
		return b.errorf("Incorrect operand type for operator or function; operator: %s, operand type: %s", name, k.word())
	}
	return nil
}

func (b *bound) checkAssigned(n *node) error {
	for _, arg := range n.args {
		if err := b.checkAssigned(arg); err != nil {
			return err
		}
	}
	switch n.op {
	case opPlus, opMinus:
		return b.checkKinds(n, "operator or function", func(k kind) bool { return k == kindNumber })
	case opListAppend:
		return b.checkKinds(n, "operator or function", func(k kind) bool { return k == kindList })
	}
	return nil
}

// createsItem tells whether an update of an absent item leaves one behind:
// taking attributes away from nothing does not.
func (b *bound) createsItem() bool {
	return slices.ContainsFunc(b.actions, func(a action) bool { return a.verb == verbSet || a.verb == verbAdd })
}

// An edit is the outcome of an action: a new value at a path, or none.
type edit struct {
	path   path
	value  value
	remove bool
}

// applyTo carries the actions out on the attributes of an item. All operands
// see the item as it was before. base is not modified.
func (b *bound) applyTo(base []attribute) ([]attribute, error) {
	before := &item{attributes: base}
	edits := make([]edit, 0, len(b.actions))
	indexed := false
	for _, a := range b.actions {
		e, changes, err := b.evaluate(a, before)
		if err != nil {
			return nil, err
		}
		if changes {
			edits = append(edits, e)
			indexed = indexed || a.path[len(a.path)-1].isIndex
		}
	}
	if indexed {
		// Elements beyond the end are appended in the order of their indexes,
		// and removals go from the back so that they do not move each other.
		slices.SortStableFunc(edits, b.compareEdits)
	}
	after := make([]attribute, len(base), len(base)+len(edits))
	copy(after, base)
	for _, e := range edits {
		var err error
		if after, err = b.edit(after, e); err != nil {
			return nil, err
		}
	}
	return after, nil
}

// compareEdits puts removals last, and these in descending order.
func (b *bound) compareEdits(x, y edit) int {
	switch {
	case x.remove && y.remove:
		return b.comparePaths(y.path, x.path)
	case x.remove:
		return 1
	case y.remove:
		return -1
	}
	return b.comparePaths(x.path, y.path)
}

func (b *bound) comparePaths(p, q path) int {
	for i := range min(len(p), len(q)) {
		if p[i].isIndex && q[i].isIndex {
			if c := compareInts(p[i].index, q[i].index); c != 0 {
				return c
			}
			continue
		}
		if c := strings.Compare(b.stepName(p[i]), b.stepName(q[i])); c != 0 {
			return c
		}
	}
	return compareInts(len(p), len(q))
}

// evaluate computes what an action does; false when it changes nothing.
func (b *bound) evaluate(a action, before *item) (edit, bool, error) {
	switch a.verb {
	case verbSet:
		v, err := b.compute(a.operand, before)
		return edit{path: a.path, value: v}, true, err
	case verbRemove:
		return edit{path: a.path, remove: true}, true, nil
	}
	operand := b.valueOf[a.operand.value]
	existing, exists := b.resolve(before, a.path)
	switch {
	case !exists:
		return edit{path: a.path, value: operand}, a.verb == verbAdd, nil
	case existing.kind != operand.kind:
		return edit{}, false, errOperandType()
	case a.verb == verbDelete:
		rest, left := existing.without(operand)
		return edit{path: a.path, value: rest, remove: !left}, true, nil
	case operand.kind == kindNumber:
		sum, err := addNumbers(existing.text, operand.text, false)
		return edit{path: a.path, value: numberValue(sum)}, true, err
	}
	return edit{path: a.path, value: existing.union(operand)}, true, nil
}

// compute evaluates the right side of a SET action.
func (b *bound) compute(n *node, before *item) (value, error) {
	switch n.op {
	case opValue:
		return b.valueOf[n.value], nil
	case opPath:
		v, exists := b.resolve(before, n.path)
		if !exists {
			return value{}, errMissingAttribute()
		}
		return v, nil
	case opIfNotExists:
		if v, exists := b.resolve(before, n.args[0].path); exists {
			return v, nil
		}
		return b.compute(n.args[1], before)
	}
	left, err := b.compute(n.args[0], before)
	if err != nil {
		return value{}, err
	}
	right, err := b.compute(n.args[1], before)
	if err != nil {
		return value{}, err
	}
	if n.op == opListAppend {
		if left.kind != kindList || right.kind != kindList {
			return value{}, errOperandType()
		}
		return listValue(slices.Concat(left.list(), right.list())), nil
	}
	if left.kind != kindNumber || right.kind != kindNumber {
		return value{}, errOperandType()
	}
	sum, err := addNumbers(left.text, right.text, n.op == opMinus)
	return numberValue(sum), err
}

// edit changes top-level attributes that the caller owns.
func (b *bound) edit(attributes []attribute, e edit) ([]attribute, error) {
	name := b.stepName(e.path[0])
	at, found := searchAttribute(attributes, name)
	switch {
	case len(e.path) > 1:
		if !found {
			return nil, errInvalidPath()
		}
		inside, err := b.editInside(attributes[at].value, e.path[1:], e)
		attributes[at].value = inside
		return attributes, err
	case e.remove && found:
		return slices.Delete(attributes, at, at+1), nil
	case e.remove:
		return attributes, nil
	case found:
		attributes[at].value = e.value
		return attributes, nil
	}
	return slices.Insert(attributes, at, attribute{name: name, value: e.value}), nil
}

// editInside returns a copy of a list or map with the edit at rest applied;
// the original belongs to an item and stays as it is.
func (b *bound) editInside(container value, rest path, e edit) (value, error) {
	s := rest[0]
	switch {
	case s.isIndex && container.kind == kindList:
		return b.editList(container.list(), s.index, rest[1:], e)
	case s.isIndex || container.kind != kindMap:
		return value{}, errInvalidPath()
	}
	name := b.stepName(s)
	if len(rest) > 1 {
		inner, found := findAttribute(container.fields(), name)
		if !found {
			return value{}, errInvalidPath()
		}
		changed, err := b.editInside(inner, rest[1:], e)
		return mapValue(withAttribute(container.fields(), name, changed)), err
	}
	if e.remove {
		return mapValue(withoutAttribute(container.fields(), name)), nil
	}
	return mapValue(withAttribute(container.fields(), name, e.value)), nil
}

func (b *bound) editList(elements []value, index int, rest path, e edit) (value, error) {
	beyond := index >= len(elements)
	switch {
	case len(rest) > 0 && beyond:
		return value{}, errInvalidPath()
	case len(rest) > 0:
		inner, err := b.editInside(elements[index], rest, e)
		changed := slices.Clone(elements)
		changed[index] = inner
		return listValue(changed), err
	case e.remove && beyond:
		return listValue(elements), nil
	case e.remove:
		return listValue(slices.Concat(elements[:index], elements[index+1:])), nil
	case beyond:
		return listValue(slices.Concat(elements, []value{e.value})), nil
	}
	changed := slices.Clone(elements)
	changed[index] = e.value
	return listValue(changed), nil
}
