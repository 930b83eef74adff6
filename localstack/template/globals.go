package template

import "go.yaml.in/yaml/v3"

// merge lays a resource's properties over the Globals of its type as SAM does:
// a scalar replaces, mappings merge, lists append with the global part first.
func merge(global, own *yaml.Node) *yaml.Node {
	if own == nil {
		return global
	}
	if global == nil || !isPlain(global) || !isPlain(own) || global.Kind != own.Kind {
		return own
	}
	switch own.Kind {
	case yaml.MappingNode:
		return mergeMappings(global, own)
	case yaml.SequenceNode:
		out := *own
		out.Content = append(append([]*yaml.Node{}, global.Content...), own.Content...)
		return &out
	default:
		return own
	}
}

func isPlain(n *yaml.Node) bool {
	name, _ := intrinsic(n)
	return name == ""
}

func mergeMappings(global, own *yaml.Node) *yaml.Node {
	out := *own
	out.Content = nil
	ownAt := map[string]*yaml.Node{}
	for i := 0; i < len(own.Content); i += 2 {
		ownAt[own.Content[i].Value] = own.Content[i+1]
	}
	inherited := map[string]bool{}
	for i := 0; i < len(global.Content); i += 2 {
		key := global.Content[i]
		inherited[key.Value] = true
		out.Content = append(out.Content, key, merge(global.Content[i+1], ownAt[key.Value]))
	}
	for i := 0; i < len(own.Content); i += 2 {
		if key := own.Content[i]; !inherited[key.Value] {
			out.Content = append(out.Content, key, own.Content[i+1])
		}
	}
	return &out
}
