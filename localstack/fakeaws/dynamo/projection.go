package dynamo

import "slices"

// A selection is a tree of the paths that a projection keeps. A selection
// without branches keeps everything below it.
type selection struct {
	fields   []selectedField
	elements []selectedElement // sorted by index
}

type selectedField struct {
	name  string
	below *selection
}

type selectedElement struct {
	index int
	below *selection
}

// selectPaths builds the selection of paths that are disjoint.
func (b *bound) selectPaths(paths []path) *selection {
	root := &selection{}
	for _, p := range paths {
		at := root
		for _, s := range p {
			if s.isIndex {
				at = at.element(s.index)
			} else {
				at = at.field(b.stepName(s))
			}
		}
	}
	return root
}

func (s *selection) field(name string) *selection {
	for _, f := range s.fields {
		if f.name == name {
			return f.below
		}
	}
	below := &selection{}
	s.fields = append(s.fields, selectedField{name, below})
	return below
}

func (s *selection) element(index int) *selection {
	at, found := slices.BinarySearchFunc(s.elements, index, func(e selectedElement, index int) int {
		return compareInts(e.index, index)
	})
	if found {
		return s.elements[at].below
	}
	below := &selection{}
	s.elements = slices.Insert(s.elements, at, selectedElement{index, below})
	return below
}

func (s *selection) everything() bool { return len(s.fields) == 0 && len(s.elements) == 0 }

// of returns the selected part of attributes, sorted by name.
func (s *selection) of(attributes []attribute) []attribute {
	if s == nil {
		return attributes
	}
	var kept []attribute
	for _, f := range s.fields {
		v, exists := findAttribute(attributes, f.name)
		if !exists {
			continue
		}
		if part, found := f.below.part(v); found {
			kept = append(kept, attribute{name: f.name, value: part})
		}
	}
	return sortAttributes(kept)
}

// part returns the selected part of a value; false when there is none. List
// elements move together, as AWS returns them.
func (s *selection) part(v value) (value, bool) {
	switch {
	case s.everything():
		return v, true
	case len(s.fields) > 0 && v.kind == kindMap:
		kept := s.of(v.fields())
		return mapValue(kept), len(kept) > 0
	case len(s.elements) > 0 && v.kind == kindList:
		var kept []value
		for _, e := range s.elements {
			if e.index >= len(v.list()) {
				break
			}
			if part, found := e.below.part(v.list()[e.index]); found {
				kept = append(kept, part)
			}
		}
		return listValue(kept), len(kept) > 0
	}
	return value{}, false
}
