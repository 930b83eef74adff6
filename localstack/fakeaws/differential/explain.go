package main

import (
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
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

// reversedRange matches our refusal of a BETWEEN whose upper bound is the lower one,
// which AWS refuses while validating the expression.
func reversedRange(_ op, ours, _ outcome) bool {
	return ours.code == "ValidationException" && strings.Contains(ours.message, "BETWEEN")
}

// updatedWithKeys matches UPDATED_NEW and UPDATED_OLD answers that differ by the key.
func updatedWithKeys(o op, ours, theirs outcome) bool {
	u, ok := o.input.(*dynamodb.UpdateItemInput)
	return ok && strings.HasPrefix(string(u.ReturnValues), "UPDATED_") && ours.code == "" && theirs.code == "" &&
		!strings.Contains(ours.text, "pk:") && strings.Contains(theirs.text, "pk:")
}

// refusedInTransaction matches an update that fails while it is carried out (a wrong
// operand type, a missing path): AWS cancels the transaction with ValidationError among
// the reasons.
func refusedInTransaction(_ op, ours, theirs outcome) bool {
	return ours.code == "TransactionCanceledException" && strings.Contains(ours.text, "ValidationError") && theirs.code != ""
}

// unchangedLeftOut matches UPDATED_ answers that differ in attributes which the update
// named but did not change. AWS returns every attribute that the expression names.
func unchangedLeftOut(o op, ours, theirs outcome) bool {
	u, ok := o.input.(*dynamodb.UpdateItemInput)
	return ok && strings.HasPrefix(string(u.ReturnValues), "UPDATED_") && ours.code == "" && theirs.code == "" &&
		len(theirs.text) < len(ours.text)
}

// wholeForNested matches UPDATED_ answers of an update of a nested path. AWS returns the
// path alone.
func wholeForNested(o op, ours, theirs outcome) bool {
	u, ok := o.input.(*dynamodb.UpdateItemInput)
	return ok && strings.HasPrefix(string(u.ReturnValues), "UPDATED_") && ours.code == "" && theirs.code == "" &&
		strings.ContainsAny(*u.UpdateExpression, ".[") && len(theirs.text) > len(ours.text)
}

// internalReason matches a cancellation reason that is the name of a Python exception.
func internalReason(_ op, _, theirs outcome) bool {
	return strings.Contains(theirs.text, "ValueError") || strings.Contains(theirs.text, "TypeError") || strings.Contains(theirs.text, "AttributeError")
}

// halfApplied matches an update that both sides refuse while it is carried out, but that
// left different items behind.
func halfApplied(o op, ours, theirs outcome) bool {
	return o.writes && ours.code == "ValidationException" && ours.text == theirs.text
}

// elementOfNoList matches a projection of an element where there is no list.
func elementOfNoList(o op, ours, theirs outcome) bool {
	g, ok := o.input.(*dynamodb.GetItemInput)
	return ok && g.ProjectionExpression != nil && strings.Contains(*g.ProjectionExpression, "[") && ours.code == "" && theirs.code == "ValidationException"
}

var inOfOther = regexp.MustCompile(`(bo1|nu1|m1|l1|ss1|ns1)[^ ]* IN`)

// onlyDeletes matches an update that had nothing but REMOVE and DELETE. On AWS such an
// update of an absent item leaves no item behind.
func onlyDeletes(o op, _, _ outcome) bool {
	switch in := o.input.(type) {
	case *dynamodb.UpdateItemInput:
		return deletesOnly(*in.UpdateExpression)
	case *dynamodb.TransactWriteItemsInput:
		return slices.ContainsFunc(in.TransactItems, func(it types.TransactWriteItem) bool {
			return it.Update != nil && deletesOnly(*it.Update.UpdateExpression)
		})
	}
	return false
}

func deletesOnly(expression string) bool {
	return !strings.Contains(expression, "SET ") && !strings.Contains(expression, "ADD ")
}

// pageEndsWithData matches a page that is full with the last item: AWS gives a
// LastEvaluatedKey all the same.
func pageEndsWithData(o op, ours, theirs outcome) bool {
	q, ok := o.input.(*dynamodb.QueryInput)
	return ok && q.Limit != nil && strings.Contains(ours.text, "{pk:") && strings.Contains(theirs.text, "{}")
}

// overlappingPaths matches our refusal of an update that names a path twice. AWS refuses
// it while validating, before it evaluates the condition.
func overlappingPaths(_ op, ours, theirs outcome) bool {
	return ours.code == "ValidationException" && strings.Contains(ours.message, "overlap") &&
		(theirs.code == "ConditionalCheckFailedException" || theirs.code == "TransactionCanceledException")
}

var explanations = map[string][]explanation{
	"dynalite": {
		{"dynalite's IN never matches a boolean, a null, a map, a list or a set", func(o op, _, _ outcome) bool { return inOfOther.MatchString(o.text()) }},
		{"dynalite creates an item for an update of an absent one that only deletes; AWS leaves none", onlyDeletes},
		{"dynalite compares literals that have no order (sets, booleans, maps, null); AWS refuses the expression", ordersUnordered},
	},
	"moto": {
		{"moto creates an item for an update of an absent one that only deletes; AWS leaves none", onlyDeletes},
		{"moto compares literals that have no order (sets, booleans, maps, null); AWS refuses the expression", ordersUnordered},
		{"moto leaves unchanged attributes out of the updated ones", unchangedLeftOut},
		{"moto returns the whole attribute where a nested path was updated", wholeForNested},
		{"moto fails inside a transaction on operands of another type", internalReason},
		{"moto keeps the first actions of an update whose later action fails", halfApplied},
		{"moto refuses to project an element of what is no list", elementOfNoList},
		{"moto leaves LastEvaluatedKey out when a page ends with the last item; AWS gives it", pageEndsWithData},
		{"moto evaluates the condition before it validates that paths do not overlap", overlappingPaths},
		{"moto accepts a BETWEEN with reversed bounds; AWS refuses it", reversedRange},
		{"moto returns the key among the updated attributes of a new item", updatedWithKeys},
		{"moto answers ValidationException instead of cancelling the transaction with reasons", refusedInTransaction},
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
