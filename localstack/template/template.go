package template

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A Template is what a template declares, with every name and reference
// resolved for one stack. Lists keep the order of the template.
type Template struct {
	// Path is the file the template was read from.
	Path      string
	Stack     Stack
	Tables    []Table
	Buckets   []Bucket
	Functions []Function
	Outputs   []Output
}

// An Output is one value that the stack publishes.
type Output struct {
	Name  string
	Value string
}

// Load reads the template at path for a stack. The error is an *Error when the
// file was read but cannot be used.
func Load(path string, stack Stack) (*Template, error) {
	src, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the template: %w", err)
	}
	return Parse(path, string(src), stack)
}

// Parse is Load for a template in memory; path only names it in errors.
func Parse(path, src string, stack Stack) (*Template, error) {
	root, problem := parseYAML(src)
	if problem != nil {
		return nil, &Error{Path: path, Problems: []Problem{*problem}}
	}
	e := &evaluator{stack: stack, parameters: map[string]any{}, resources: map[string]resource{}, roles: map[string][]Statement{}}
	t := e.template(root)
	if len(e.problems) > 0 {
		return nil, &Error{Path: path, Problems: sorted(e.problems), More: e.more}
	}
	t.Path, t.Stack = path, stack
	return t, nil
}

// Routes gives every route of every function.
func (t *Template) Routes() []Route {
	var all []Route
	for _, f := range t.Functions {
		all = append(all, f.Routes...)
	}
	return all
}

// Schedules gives every schedule of every function.
func (t *Template) Schedules() []Schedule {
	var all []Schedule
	for _, f := range t.Functions {
		all = append(all, f.Schedules...)
	}
	return all
}

// Function finds a function by its handler.
func (t *Template) Function(handler string) (Function, bool) {
	i := slices.IndexFunc(t.Functions, func(f Function) bool { return f.Handler == handler })
	if i < 0 {
		return Function{}, false
	}
	return t.Functions[i], true
}

func (e *evaluator) template(root *yaml.Node) *Template {
	o := e.object(root, "")
	// Conditions may decide about what is ignored, and about nothing else: a
	// Condition of any other resource is refused.
	o.ignore("AWSTemplateFormatVersion", "Conditions", "Description", "Metadata")
	o.oneOf("Transform", "AWS::Serverless-2016-10-31")
	e.readParameters(o.object("Parameters"))
	globals := e.globals(o.object("Globals"))
	t := &Template{}
	if o.need("Resources") != nil {
		e.readResources(t, o.object("Resources"), globals)
	}
	e.readOutputs(t, o.object("Outputs"))
	o.done()
	return t
}

// globals gives the shared properties of functions and of the API by section.
func (e *evaluator) globals(o *object) map[string]*yaml.Node {
	g := map[string]*yaml.Node{}
	for _, section := range []string{"Function", "HttpApi"} {
		if n := o.get(section); n != nil {
			g[section] = e.object(n, o.child(section)).node
		}
	}
	o.done()
	return g
}

func (e *evaluator) readOutputs(t *Template, section *object) {
	section.each(func(name string, o *object) {
		t.Outputs = append(t.Outputs, Output{Name: name, Value: o.needText("Value")})
		o.ignore(ignoredOfOutput...)
		o.done()
	})
}

// A declaration is one resource of the template with its Globals merged in.
type declaration struct {
	id, kind   string
	body       *object
	properties *object
	metadata   *object
}

func (e *evaluator) readResources(t *Template, section *object, globals map[string]*yaml.Node) {
	var all []declaration
	section.each(func(id string, o *object) {
		all = append(all, e.declaration(id, o, globals))
	})
	for _, d := range all {
		e.name(d)
	}
	for _, d := range all {
		if d.kind == "AWS::IAM::Role" {
			e.roles[e.resources[d.id].attributes["Arn"]] = e.role(d)
		}
	}
	for _, d := range all {
		e.readResource(t, d)
	}
	e.checkRoutes(t, section)
}

func (e *evaluator) declaration(id string, o *object, globals map[string]*yaml.Node) declaration {
	d := declaration{id: id, kind: o.needText("Type"), body: o}
	properties := o.get("Properties")
	switch d.kind {
	case "AWS::Serverless::Function":
		properties = merge(globals["Function"], properties)
	case "AWS::Serverless::HttpApi":
		properties = merge(globals["HttpApi"], properties)
	}
	if properties == nil {
		properties = &yaml.Node{Kind: yaml.MappingNode, Line: o.node.Line}
	}
	d.properties = e.object(properties, o.child("Properties"))
	d.metadata = o.object("Metadata")
	if slices.Contains(ignoredTypes, d.kind) {
		o.ignore("Condition")
	}
	o.ignore(ignoredOfResource...)
	o.done()
	return d
}

// name makes a resource known to Ref and Fn::GetAtt under the physical name it
// will have: the declared one, or one made of the stack's name as CloudFormation
// does (without its random suffix, so that a restart finds its table again).
func (e *evaluator) name(d declaration) {
	generated := e.stack.Name + "-" + d.id
	r := resource{kind: d.kind}
	switch d.kind {
	case "AWS::DynamoDB::Table":
		r.ref = cmp.Or(e.stack.Names[d.id], d.properties.text("TableName"), generated)
		r.attributes = map[string]string{"Arn": e.stack.arn("dynamodb", "table/"+r.ref)}
	case "AWS::S3::Bucket":
		r.ref = cmp.Or(e.stack.Names[d.id], d.properties.text("BucketName"), strings.ToLower(generated))
		r.attributes = map[string]string{"Arn": "arn:aws:s3:::" + r.ref}
	case "AWS::Serverless::Function":
		r.ref = generated
		r.attributes = map[string]string{"Arn": e.stack.arn("lambda", "function:"+r.ref)}
	case "AWS::Serverless::HttpApi":
		r.ref = generated
		r.attributes = map[string]string{"ApiEndpoint": e.stack.APIEndpoint}
	case "AWS::Events::EventBus":
		r.ref = generated
		r.attributes = map[string]string{"Arn": e.stack.arn("events", "event-bus/"+r.ref)}
	case "AWS::SQS::Queue":
		r.ref = generated
		r.attributes = map[string]string{"Arn": e.stack.arn("sqs", r.ref)}
	case "AWS::Logs::LogGroup":
		r.ref = generated
		// The star stands for the group's streams.
		r.attributes = map[string]string{"Arn": e.stack.arn("logs", "log-group:"+r.ref+":*")}
	case "AWS::IAM::Role":
		r.ref = generated
		r.attributes = map[string]string{"Arn": "arn:aws:iam::" + e.stack.Account + ":role/" + r.ref}
	}
	e.resources[d.id] = r
}

func (e *evaluator) readResource(t *Template, d declaration) {
	switch {
	case d.kind == "AWS::DynamoDB::Table":
		t.Tables = append(t.Tables, e.table(d))
	case d.kind == "AWS::S3::Bucket":
		t.Buckets = append(t.Buckets, e.bucket(d))
	case d.kind == "AWS::Serverless::Function":
		t.Functions = append(t.Functions, e.function(d))
	case d.kind == "AWS::Serverless::HttpApi":
		e.httpAPI(d)
	case d.kind == "AWS::IAM::Role": // read before, for the functions
	case d.kind != "" && !slices.Contains(ignoredTypes, d.kind):
		e.failf(d.body.node, "%s: the resource type %s is not understood by the local runner", d.body.path, d.kind)
	}
}
