package template

import (
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"go.yaml.in/yaml/v3"
)

// maxDays is the most that S3 takes as a number of days.
const maxDays = 1<<31 - 1

// lifecycle reads a bucket's LifecycleConfiguration. What takes objects away is
// understood or refused: a local hub that forgot less than the deployed one would
// grow, and one that forgot more would lose.
func (e *evaluator) lifecycle(o *object) []types.LifecycleRule {
	o.need("Rules")
	var rules []types.LifecycleRule
	seen := map[string]bool{}
	for i, n := range o.list("Rules") {
		r := e.lifecycleRule(n, fmt.Sprintf("%s[%d]", o.child("Rules"), i))
		if id := aws.ToString(r.ID); id != "" && seen[id] {
			e.failf(n, "%s[%d].Id: %q stands twice", o.child("Rules"), i, id)
		} else {
			seen[id] = true
		}
		rules = append(rules, r)
	}
	o.done()
	return rules
}

func (e *evaluator) lifecycleRule(n *yaml.Node, path string) types.LifecycleRule {
	o := e.object(n, path)
	r := types.LifecycleRule{
		ID:     aws.String(o.needText("Id")), // a generated one would differ at every start
		Status: types.ExpirationStatus(o.oneOf("Status", "Enabled", "Disabled")),
		Filter: &types.LifecycleRuleFilter{Prefix: aws.String(o.text("Prefix"))},
	}
	if days := o.days("ExpirationInDays"); days != nil {
		r.Expiration = &types.LifecycleExpiration{Days: days}
	}
	if o.get("ExpiredObjectDeleteMarker") != nil && o.oneOf("ExpiredObjectDeleteMarker", "true", "false") == "true" {
		if r.Expiration != nil {
			e.failf(n, "%s: ExpirationInDays and ExpiredObjectDeleteMarker exclude each other", path)
		}
		r.Expiration = &types.LifecycleExpiration{ExpiredObjectDeleteMarker: aws.Bool(true)}
	}
	if days := e.daysOf(o, "NoncurrentVersionExpiration", "NoncurrentDays"); days != nil {
		r.NoncurrentVersionExpiration = &types.NoncurrentVersionExpiration{NoncurrentDays: days}
	}
	if days := e.daysOf(o, "AbortIncompleteMultipartUpload", "DaysAfterInitiation"); days != nil {
		r.AbortIncompleteMultipartUpload = &types.AbortIncompleteMultipartUpload{DaysAfterInitiation: days}
	}
	before := e.count()
	o.done()
	if e.count() == before && r.Expiration == nil && r.NoncurrentVersionExpiration == nil && r.AbortIncompleteMultipartUpload == nil {
		e.failf(n, "%s takes nothing away", path)
	}
	return r
}

// days reads a number of days; nil when it is absent.
func (o *object) days(key string) *int32 {
	if o.get(key) == nil {
		return nil
	}
	return aws.Int32(int32(o.integer(key, 1, 1, maxDays)))
}

// daysOf reads the only element of an action that counts days.
func (e *evaluator) daysOf(rule *object, action, element string) *int32 {
	if rule.get(action) == nil {
		return nil
	}
	o := rule.object(action)
	o.need(element)
	days := o.days(element)
	o.done()
	return days
}
