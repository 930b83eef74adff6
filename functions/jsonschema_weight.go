package functions

import (
	"encoding/json"
	"regexp/syntax"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// A scale weighs a compiled schema: what judging one value by it costs. A part
// counts as often as references lead to it, because it is judged as often; a
// schema that leads back to itself has no weight.
type scale struct {
	known   map[*jsonschema.Schema]int
	open    map[*jsonschema.Schema]bool
	problem string
}

// weigh returns a schema's weight, or why it cannot be judged in bounded time.
func weigh(s *jsonschema.Schema) (int, string) {
	scales := &scale{known: map[*jsonschema.Schema]int{}, open: map[*jsonschema.Schema]bool{}}
	weight := scales.weigh(s)
	if scales.problem == "" && weight > maxSchemaWeight {
		scales.problem = "judging by it is too much work"
	}
	return weight, scales.problem
}

func (c *scale) weigh(s *jsonschema.Schema) int {
	weight, known := c.known[s]
	switch {
	case s == nil, c.problem != "":
		return 0
	case known:
		return weight
	case c.open[s]:
		c.problem = "it refers to itself"
		return 0
	case s.DynamicRef != nil, s.RecursiveRef != nil:
		c.problem = "dynamic and recursive references are not followed"
		return 0
	}
	c.open[s] = true
	weight = ownWeight(s)
	for _, part := range partsOf(s) {
		weight = min(weight+c.weigh(part), maxSchemaWeight+1) // it may double with every reference
	}
	delete(c.open, s)
	c.known[s] = weight
	return weight
}

// ownWeight is what the keywords of one schema object cost, without those of its
// parts.
func ownWeight(s *jsonschema.Schema) int {
	weight := 1 + len(s.Required) + len(s.DependentRequired) + len(s.Dependencies)
	if s.Enum != nil {
		weight += countNodes(s.Enum.Values)
	}
	if s.Const != nil {
		weight += countNodes(*s.Const)
	}
	if s.Pattern != nil {
		weight += patternWeight(s.Pattern.String())
	}
	for pattern := range s.PatternProperties {
		weight += patternWeight(pattern.String())
	}
	return weight
}

// partsOf lists the schemas that a value, or a part of it, is judged by next.
func partsOf(s *jsonschema.Schema) []*jsonschema.Schema {
	parts := []*jsonschema.Schema{
		s.Ref, s.Not, s.If, s.Then, s.Else, s.PropertyNames, s.UnevaluatedProperties, s.Contains, s.Items2020, s.UnevaluatedItems, s.ContentSchema,
	}
	for _, list := range [][]*jsonschema.Schema{s.AllOf, s.AnyOf, s.OneOf, s.PrefixItems} {
		parts = append(parts, list...)
	}
	for _, part := range s.Properties {
		parts = append(parts, part)
	}
	for _, part := range s.PatternProperties {
		parts = append(parts, part)
	}
	for _, part := range s.DependentSchemas {
		parts = append(parts, part)
	}
	for _, part := range s.Dependencies {
		parts = append(parts, schemasIn(part)...)
	}
	for _, part := range []any{s.AdditionalProperties, s.AdditionalItems, s.Items} {
		parts = append(parts, schemasIn(part)...)
	}
	return parts
}

// schemasIn takes the schemas out of a keyword that may hold one, several or
// something else.
func schemasIn(keyword any) []*jsonschema.Schema {
	switch k := keyword.(type) {
	case *jsonschema.Schema:
		return []*jsonschema.Schema{k}
	case []*jsonschema.Schema:
		return k
	}
	return nil
}

// patternWeight is the size of a pattern's program, in units: it is run over
// every byte. One that is none is refused elsewhere.
func patternWeight(pattern string) int {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return 0
	}
	return 1 + len(program.Inst)/8
}

// patternsWeight adds up the patterns of a schema that is not compiled yet, and
// stops when they are too many to be.
func patternsWeight(value any) int {
	weight := 0
	switch v := value.(type) {
	case map[string]any:
		for name, member := range v {
			if pattern, ok := member.(string); ok && name == "pattern" {
				weight += patternWeight(pattern)
			}
			if patterns, ok := member.(map[string]any); ok && name == "patternProperties" {
				for pattern := range patterns {
					weight += patternWeight(pattern)
				}
			}
			if weight += patternsWeight(member); weight > maxSchemaWeight {
				break
			}
		}
	case []any:
		for _, element := range v {
			if weight += patternsWeight(element); weight > maxSchemaWeight {
				break
			}
		}
	}
	return weight
}

// countNodes is how many values a decoded JSON value holds, itself included.
func countNodes(value any) int {
	nodes := 1
	switch v := value.(type) {
	case map[string]any:
		for _, member := range v {
			nodes += countNodes(member)
		}
	case []any:
		for _, element := range v {
			nodes += countNodes(element)
		}
	}
	return nodes
}

// hasHugeNumber tells whether a decoded value holds a number whose exact form is
// out of proportion to its text, or long.
func hasHugeNumber(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		for _, member := range v {
			if hasHugeNumber(member) {
				return true
			}
		}
	case []any:
		for _, element := range v {
			if hasHugeNumber(element) {
				return true
			}
		}
	case json.Number:
		return isHuge(v.String())
	}
	return false
}

func isHuge(number string) bool {
	_, power, written := strings.Cut(strings.ToLower(number), "e")
	if !written {
		return len(number) > maxNumberText
	}
	n, err := strconv.Atoi(power)
	return len(number) > maxNumberText || err != nil || n > maxNumberText || n < -maxNumberText
}
