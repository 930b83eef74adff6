package main

// An explanation says why the other server may answer differently from AWS, as
// documented or measured, in cases that match.
type explanation struct {
	reason  string
	matches func(o op, ours, theirs outcome) bool
}

var explanations = map[string][]explanation{
	"dynalite": {},
	"moto":     {},
}

func (c *comparison) explain(o op, ours, theirs outcome) string {
	for _, e := range explanations[c.name] {
		if e.matches(o, ours, theirs) {
			return e.reason
		}
	}
	return ""
}
