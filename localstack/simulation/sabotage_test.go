package simulation

import (
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// always makes a condition hold whatever the item is, with all that it names.
func always(condition *string) *string {
	if condition == nil {
		return nil
	}
	return aws.String(*condition + " OR attribute_exists(pk) OR attribute_not_exists(pk)")
}

func partition(attributes map[string]types.AttributeValue) string {
	if pk, ok := attributes["pk"].(*types.AttributeValueMemberS); ok {
		return pk.Value
	}
	return ""
}

// unguarded takes the conditions off updates, and off puts alone or in
// transactions, of the items of a kind.
func unguarded(kind string) func(any) {
	return func(parameters any) {
		switch p := parameters.(type) {
		case *dynamodb.UpdateItemInput:
			if strings.HasPrefix(partition(p.Key), kind) {
				p.ConditionExpression = always(p.ConditionExpression)
			}
		case *dynamodb.PutItemInput:
			if strings.HasPrefix(partition(p.Item), kind) {
				p.ConditionExpression = always(p.ConditionExpression)
			}
		case *dynamodb.TransactWriteItemsInput:
			for _, action := range p.TransactItems {
				if action.Put != nil && strings.HasPrefix(partition(action.Put.Item), kind) {
					action.Put.ConditionExpression = always(action.Put.ConditionExpression)
				}
				if action.Update != nil && strings.HasPrefix(partition(action.Update.Key), kind) {
					action.Update.ConditionExpression = always(action.Update.ConditionExpression)
				}
			}
		}
	}
}

// unchecked makes what transactions check of other items hold.
func unchecked(kind string) func(any) {
	return func(parameters any) {
		if p, ok := parameters.(*dynamodb.TransactWriteItemsInput); ok {
			for _, action := range p.TransactItems {
				if action.ConditionCheck != nil && strings.HasPrefix(partition(action.ConditionCheck.Key), kind) {
					action.ConditionCheck.ConditionExpression = always(action.ConditionCheck.ConditionExpression)
				}
			}
		}
	}
}

// without leaves an attribute out of the items of a kind.
func without(kind, attribute string) func(any) {
	return func(parameters any) {
		switch p := parameters.(type) {
		case *dynamodb.PutItemInput:
			if strings.HasPrefix(partition(p.Item), kind) {
				delete(p.Item, attribute)
			}
		case *dynamodb.TransactWriteItemsInput:
			for _, action := range p.TransactItems {
				if action.Put != nil && strings.HasPrefix(partition(action.Put.Item), kind) {
					delete(action.Put.Item, attribute)
				}
			}
		}
	}
}

// A sabotage breaks one guard of the product.
type sabotage struct {
	what   string
	focus  focus
	tamper func(any)
	finds  string // what the audit says, among others
	usual  bool   // tried in every run, not only in long ones
}

var sabotages = []sabotage{
	{"agents' writes go without their conditions", onMessages, unguarded("agent#"), "the fence is generation", true},
	{"deliveries change without their conditions", onMessages, unguarded("inbox#"), "what was acknowledged changed", false},
	{"roles change without their conditions", onRoles, unguarded("role#"), "changed role#", false},
	{"jobs change without their conditions", onWork, unguarded("job#"), "changed job#", false},
	{"human requests change without their conditions", onWork, unguarded("human#"), "what had ended ended again", false},
	{"idempotency keys are stored without their conditions", onMessages, unguarded("idem#"), "one key made several", false},
	{"nobody checks an agent's fence", onMessages, unchecked("agent#"), "the fence is generation", false},
	{"nobody checks a role's epoch", onRoles, unchecked("role#"), "acts for the role", false},
	{"jobs are stored without their due entry", onWork, without("job#", "due_pk"), "the sweep finds it late or never", false},
	{"messages are stored without their due entry", onMessages, without("inbox#", "due_pk"), "the sweep finds it late or never", false},
	{"human requests are stored without their place in the list", onWork, without("human#", "list_pk"), "the list of pending human requests", false},
	{"archive jobs are replaced whatever they are", onArchive, func(parameters any) {
		if p, ok := parameters.(*s3.PutObjectInput); ok && strings.HasPrefix(*p.Key, "jobs/") {
			p.IfMatch = nil
		}
	}, "a job that was done changed", true},
}

// TestTheAuditFindsABrokenGuard breaks the product where it talks to AWS, and
// expects the audit to say so: an audit that cannot fail shows nothing.
func TestTheAuditFindsABrokenGuard(t *testing.T) {
	steps := 500
	if long() {
		steps = 1200
	}
	for _, s := range sabotages {
		if !s.usual && !long() {
			continue
		}
		t.Run(s.what, func(t *testing.T) {
			const tries = 10
			for seed := range uint64(tries) {
				p := plan{seed: seed, steps: steps, lambda: true, sweeps: sweepsNever, focus: s.focus, faults: 40, tamper: s.tamper}
				r := simulate(t, p)
				if found := slices.IndexFunc(r.wrong, func(wrong string) bool { return strings.Contains(wrong, s.finds) }); found >= 0 {
					t.Logf("%s: %.300s", p, r.wrong[found])
					return
				}
			}
			t.Errorf("%d runs, and nobody noticed", tries)
		})
	}
}
