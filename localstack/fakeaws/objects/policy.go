package objects

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// maxPolicySize is S3's limit of a bucket policy.
const maxPolicySize = 20 << 10

// A policy is a bucket policy of the kind that is enforced: Deny statements for
// every principal, whose conditions are among
//
//	Null  s3:if-none-match, s3:if-match    the header is absent ("true") or present
//	Bool  s3:ObjectCreationOperation       the request creates an object
//	Bool  aws:SecureTransport              always true: the loopback hop counts as secure
//
// This is what enforcing conditional writes takes (Amazon S3 user guide,
// "Enforce conditional writes on Amazon S3 buckets"): CreateMultipartUpload and
// UploadPart need s3:PutObject too, cannot carry the headers, and are exempted by
// s3:ObjectCreationOperation. Every other element is refused by its name.
type policy struct {
	document   string
	statements []denial
}

// A denial is one Deny statement.
type denial struct {
	actions   []string // patterns, lower case: actions ignore case
	resources []string // patterns
	null      map[string]bool
	boolean   map[string]bool
}

// A policyContext is a request as a policy sees it.
type policyContext struct {
	action      string
	bucket, key string
	ifNoneMatch string
	ifMatch     string
	// creates is the value of s3:ObjectCreationOperation; nil where the key is
	// absent, which is where the action is not s3:PutObject.
	creates *bool
}

func (req *request) policyContext() policyContext {
	ctx := policyContext{
		action: req.op.action, bucket: req.bucket, key: req.key,
		ifNoneMatch: req.header.Get("If-None-Match"), ifMatch: req.header.Get("If-Match"),
	}
	if req.key != "" && req.query.Get("versionId") != "" {
		ctx.action += "Version" // s3:GetObjectVersion, s3:DeleteObjectVersion
	}
	if ctx.action == "s3:PutObject" {
		creates := req.op.name != "CreateMultipartUpload" && req.op.name != "UploadPart"
		ctx.creates = &creates
	}
	return ctx
}

func (ctx policyContext) resource() string {
	arn := "arn:aws:s3:::" + ctx.bucket
	if ctx.key != "" {
		arn += "/" + ctx.key
	}
	return arn
}

// authorize returns AccessDenied when a statement denies the request.
func (p *policy) authorize(ctx policyContext) error {
	if p == nil || ctx.action == "" {
		return nil
	}
	resource := ctx.resource()
	for _, d := range p.statements {
		if d.denies(ctx, resource) {
			return newError(http.StatusForbidden, "AccessDenied", fmt.Sprintf(
				"User: arn:aws:iam::%s:root is not authorized to perform: %s on resource: %q with an explicit deny in a resource-based policy",
				accountID, ctx.action, resource))
		}
	}
	return nil
}

func (d denial) denies(ctx policyContext, resource string) bool {
	action := strings.ToLower(ctx.action)
	if !slices.ContainsFunc(d.actions, func(p string) bool { return wildcardMatch(p, action) }) ||
		!slices.ContainsFunc(d.resources, func(p string) bool { return wildcardMatch(p, resource) }) {
		return false
	}
	for name, absent := range d.null {
		header := ctx.ifMatch
		if name == "s3:if-none-match" {
			header = ctx.ifNoneMatch
		}
		if (header == "") != absent {
			return false
		}
	}
	for name, want := range d.boolean {
		switch name {
		case "aws:securetransport":
			if !want {
				return false
			}
		case "s3:objectcreationoperation":
			if ctx.creates == nil || *ctx.creates != want {
				return false
			}
		}
	}
	return true
}

// wildcardMatch matches "*" (any run) and "?" (any one byte) in time linear in
// the text for each star.
func wildcardMatch(pattern, text string) bool {
	star, resume := -1, 0
	p := 0
	for t := 0; t < len(text); {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, resume = p, t
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == text[t]):
			p++
			t++
		case star >= 0:
			p, resume = star+1, resume+1
			t = resume
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

func malformedPolicy(message string) *apiError {
	return newError(http.StatusBadRequest, "MalformedPolicy", message)
}

// parsePolicy reads the policy of a bucket. It refuses with MalformedPolicy what
// AWS refuses, and with NotImplemented what AWS takes and is not enforced here.
func parsePolicy(bucket, document string) (*policy, error) {
	if len(document) > maxPolicySize {
		return nil, malformedPolicy("Normalized bucket policy exceeds the maximum allowed size of 20 KB")
	}
	if !strings.HasPrefix(document, "{") || !json.Valid([]byte(document)) {
		return nil, malformedPolicy("Policies must be valid JSON and the first byte must be '{'")
	}
	var doc struct {
		Version   string
		ID        string `json:"Id"`
		Statement json.RawMessage
	}
	if err := decodeStrict([]byte(document), &doc); err != nil {
		return nil, refusedElement("", err)
	}
	if len(doc.Statement) == 0 {
		return nil, malformedPolicy("Missing required field Statement")
	}
	raw, err := oneOrMany[json.RawMessage](doc.Statement)
	if err != nil {
		return nil, malformedPolicy("Statement must be an object or a list of objects")
	}
	p := &policy{document: document}
	for i, text := range raw {
		d, err := parseStatement(bucket, text)
		if err != nil {
			return nil, refusedElement(fmt.Sprintf("Statement[%d]: ", i), err)
		}
		p.statements = append(p.statements, d)
	}
	return p, nil
}

// refusedElement adds where in the policy an error arose. What is no *apiError
// comes from decodeStrict: a value of the wrong type, or an unknown member.
func refusedElement(where string, err error) error {
	var failure *apiError
	if errors.As(err, &failure) {
		failure.message = where + failure.message
		return failure
	}
	var wrongType *json.UnmarshalTypeError
	if errors.As(err, &wrongType) {
		return malformedPolicy(where + "Syntax error in policy: unexpected " + wrongType.Value)
	}
	return notImplemented("this element of a bucket policy: " + where + err.Error())
}

// decodeStrict decodes JSON and reports members that the target has no place for.
func decodeStrict(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// oneOrMany reads a value that policies write alone or in a list.
func oneOrMany[T any](text json.RawMessage) ([]T, error) {
	var many []T
	if len(text) > 0 && text[0] == '[' {
		err := json.Unmarshal(text, &many)
		return many, err
	}
	var one T
	if err := json.Unmarshal(text, &one); err != nil {
		return nil, err
	}
	return []T{one}, nil
}

type statement struct {
	Sid       string
	Effect    string
	Principal json.RawMessage
	Action    json.RawMessage
	Resource  json.RawMessage
	Condition map[string]map[string]json.RawMessage
}

func parseStatement(bucket string, text json.RawMessage) (denial, error) {
	var st statement
	var d denial
	if err := decodeStrict(text, &st); err != nil {
		return d, err
	}
	switch st.Effect {
	case "Deny":
	case "Allow":
		return d, notImplemented("bucket policies with Effect Allow: every caller here owns the account")
	default:
		return d, malformedPolicy("Invalid effect: " + st.Effect)
	}
	if len(st.Principal) == 0 {
		return d, malformedPolicy("Missing required field Principal")
	}
	if !everyone(st.Principal) {
		return d, notImplemented("bucket policies with Principal " + string(st.Principal) + `: only "*"`)
	}
	var err error
	if d.actions, err = oneOrMany[string](st.Action); err != nil || len(d.actions) == 0 {
		return d, malformedPolicy("Missing required field Action")
	}
	for i, action := range d.actions {
		d.actions[i] = strings.ToLower(action)
		if !strings.HasPrefix(d.actions[i], "s3:") && action != "*" {
			return d, malformedPolicy("Policy has invalid action")
		}
	}
	if d.resources, err = oneOrMany[string](st.Resource); err != nil || len(d.resources) == 0 {
		return d, malformedPolicy("Missing required field Resource")
	}
	for _, resource := range d.resources {
		arn := "arn:aws:s3:::" + bucket
		if resource != arn && !strings.HasPrefix(resource, arn+"/") && resource != arn+"*" {
			return d, malformedPolicy("Policy has invalid resource")
		}
		if strings.Contains(resource, "${") {
			return d, notImplemented("policy variables in Resource")
		}
	}
	return d, d.parseConditions(st.Condition)
}

// everyone tells whether a principal is "*" or {"AWS": "*"}.
func everyone(principal json.RawMessage) bool {
	var all string
	if json.Unmarshal(principal, &all) == nil {
		return all == "*"
	}
	var byKind map[string]json.RawMessage
	if json.Unmarshal(principal, &byKind) != nil || len(byKind) != 1 {
		return false
	}
	names, err := oneOrMany[string](byKind["AWS"])
	return err == nil && len(names) == 1 && names[0] == "*"
}

// conditionKeys are the keys that each operator may test, lower case: keys
// ignore case.
var conditionKeys = map[string][]string{
	"Null": {"s3:if-none-match", "s3:if-match"},
	"Bool": {"aws:securetransport", "s3:objectcreationoperation"},
}

func (d *denial) parseConditions(conditions map[string]map[string]json.RawMessage) error {
	d.null, d.boolean = make(map[string]bool), make(map[string]bool)
	for operator, tests := range conditions {
		known, ok := conditionKeys[operator]
		if !ok {
			return notImplemented("the condition operator " + operator)
		}
		for key, raw := range tests {
			name := strings.ToLower(key)
			if !slices.Contains(known, name) {
				return notImplemented("the condition " + operator + " on " + key)
			}
			value, err := parseConditionBool(raw)
			if err != nil {
				return err
			}
			if operator == "Null" {
				d.null[name] = value
			} else {
				d.boolean[name] = value
			}
		}
	}
	return nil
}

// parseConditionBool reads true, "true" or ["true"].
func parseConditionBool(raw json.RawMessage) (bool, error) {
	values, err := oneOrMany[any](raw)
	if err != nil || len(values) != 1 {
		return false, malformedPolicy("A Null or Bool condition takes one value")
	}
	switch text := strings.ToLower(fmt.Sprint(values[0])); text {
	case "true":
		return true, nil
	case "false":
		return false, nil
	default:
		return false, malformedPolicy("Invalid Boolean value: " + text)
	}
}
