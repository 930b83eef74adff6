package template

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// CloudFormation's own limit for a template kept in S3.
const maxTemplateBytes = 1 << 20

// maxDepth is far beyond what a template nests and keeps recursion bounded.
const maxDepth = 64

// parseYAML gives the root mapping of the one document in src. Anchors, aliases,
// merge keys and repeated keys are refused: CloudFormation either rejects them or
// lets one of two values win silently.
func parseYAML(src string) (*yaml.Node, *Problem) {
	if len(src) > maxTemplateBytes {
		return nil, &Problem{1, fmt.Sprintf("the template has %d bytes; CloudFormation takes at most %d", len(src), maxTemplateBytes)}
	}
	dec := yaml.NewDecoder(strings.NewReader(src))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, &Problem{1, "the template is empty"}
		}
		return nil, notYAML(err)
	}
	var second yaml.Node
	if err := dec.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, &Problem{max(second.Line, 1), "a template is one YAML document; there is a second one"}
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, &Problem{root.Line, "a template is a mapping of sections"}
	}
	if p := checkSyntax(root, 0); p != nil {
		return nil, p
	}
	return root, nil
}

var yamlError = regexp.MustCompile(`\Ayaml: line (\d+): (.*)`)

// notYAML takes the line out of the YAML parser's message.
func notYAML(err error) *Problem {
	if m := yamlError.FindStringSubmatch(err.Error()); m != nil {
		if line, err := strconv.Atoi(m[1]); err == nil {
			return &Problem{line, "not YAML: " + m[2]}
		}
	}
	return &Problem{1, "not YAML: " + strings.TrimPrefix(err.Error(), "yaml: ")}
}

func checkSyntax(n *yaml.Node, depth int) *Problem {
	if depth > maxDepth {
		return &Problem{n.Line, fmt.Sprintf("nested deeper than %d levels", maxDepth)}
	}
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		return &Problem{n.Line, "anchors and aliases are not understood"}
	}
	if n.Kind == yaml.MappingNode {
		if p := checkKeys(n); p != nil {
			return p
		}
	}
	for _, c := range n.Content {
		if p := checkSyntax(c, depth+1); p != nil {
			return p
		}
	}
	return nil
}

func checkKeys(n *yaml.Node) *Problem {
	seen := make(map[string]int, len(n.Content)/2)
	for i := 0; i < len(n.Content); i += 2 {
		k := n.Content[i]
		if k.Kind != yaml.ScalarNode || k.Tag == "!!merge" {
			return &Problem{k.Line, "a key must be a plain word"}
		}
		if first, twice := seen[k.Value]; twice {
			return &Problem{k.Line, fmt.Sprintf("%q stands twice in one mapping, first in line %d", k.Value, first)}
		}
		seen[k.Value] = k.Line
	}
	return nil
}
