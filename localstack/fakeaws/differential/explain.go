package main

import (
	"regexp"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// An explanation says why the other server may answer differently from AWS, as
// documented or measured, in cases that match.
type explanation struct {
	reason  string
	matches func(o op, ours, theirs outcome) bool
}

// ordersUnordered matches our refusal of <, <=, >, >= on a literal that has no
// order. AWS refuses it while validating the expression ("Incorrect operand type
// for operator or function").
func ordersUnordered(_ op, ours, _ outcome) bool {
	return ours.code == "ValidationException" && orderOperand.MatchString(ours.message)
}

var orderOperand = regexp.MustCompile(`(?i)incorrect operand type for operator or function; operator( or function)?: (<|<=|>|>=|BETWEEN)`)

// onlyDeletes matches an update that had nothing but REMOVE and DELETE. On AWS such an
// update of an absent item leaves no item behind.
func onlyDeletes(o op, _, _ outcome) bool {
	u, ok := o.input.(*dynamodb.UpdateItemInput)
	return ok && !strings.Contains(*u.UpdateExpression, "SET ") && !strings.Contains(*u.UpdateExpression, "ADD ")
}

var explanations = map[string][]explanation{
	"dynalite": {
		{"dynalite creates an item for an update of an absent one that only deletes; AWS leaves none", onlyDeletes},
		{"dynalite compares literals that have no order (sets, booleans, maps, null); AWS refuses the expression", ordersUnordered},
	},
	"moto": {
		{"moto creates an item for an update of an absent one that only deletes; AWS leaves none", onlyDeletes},
		{"moto compares literals that have no order (sets, booleans, maps, null); AWS refuses the expression", ordersUnordered},
		{"moto answers 500 where an operand has an unexpected type", func(_ op, _, theirs outcome) bool {
			return theirs.err != nil && strings.Contains(theirs.err.Error(), "500")
		}},
	},
}

func (c *comparison) explain(o op, ours, theirs outcome) string {
	for _, e := range explanations[c.name] {
		if e.matches(o, ours, theirs) {
			return e.reason
		}
	}
	return ""
}
