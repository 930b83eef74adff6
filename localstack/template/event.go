package template

import (
	"regexp"
	"strconv"
	"strings"
	"time"
)

// A Route sends requests of the HTTP API to a function.
type Route struct {
	// Method is an HTTP method or ANY; empty for the default route.
	Method string
	// Path is matched literally; empty for the default route.
	Path      string
	Handler   string
	LogicalID string
	// Timeout is how long the gateway waits for the function.
	Timeout time.Duration
}

// Key names the route as API Gateway does: "POST /bridge/register", "$default".
func (r Route) Key() string {
	if r.Path == "" {
		return "$default"
	}
	return r.Method + " " + r.Path
}

// A Schedule invokes a function again and again.
type Schedule struct {
	// Name is the function's and the event's logical id, joined: SAM's name for it.
	Name      string
	Handler   string
	LogicalID string
	// Every is the period on AWS, Local the one on a laptop.
	Every time.Duration
	Local time.Duration
	// Input is the payload; empty means the scheduler's own event.
	Input string
}

func (e *evaluator) readEvents(f *Function, o *object, local time.Duration) {
	o.each(func(name string, event *object) {
		kind := event.oneOf("Type", "HttpApi", "ScheduleV2")
		properties := event.object("Properties")
		switch kind {
		case "HttpApi":
			f.Routes = append(f.Routes, e.route(f, properties))
		case "ScheduleV2":
			f.Schedules = append(f.Schedules, e.schedule(f, name, properties, local))
		}
		event.done()
	})
}

var methods = []string{"ANY", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

// The characters of a path that matches itself and nothing else.
var literalPath = regexp.MustCompile(`\A/[A-Za-z0-9._~/-]*\z`)

// gatewayTimeout is an HTTP API's own limit for an integration.
const gatewayTimeout = 30000

func (e *evaluator) route(f *Function, o *object) Route {
	r := Route{Handler: f.Handler, LogicalID: f.LogicalID}
	e.checkAPI(o)
	o.oneOf("PayloadFormatVersion", "2.0")
	r.Timeout = time.Duration(o.integer("TimeoutInMillis", gatewayTimeout, 50, gatewayTimeout)) * time.Millisecond
	if o.get("Path") != nil || o.get("Method") != nil {
		r.Method = o.oneOf("Method", methods...)
		r.Path = o.needText("Path")
		if r.Path != "" && !literalPath.MatchString(r.Path) {
			e.failf(o.get("Path"), "%s: path variables are not understood by the local runner: %q", o.child("Path"), r.Path)
		}
	}
	o.done()
	return r
}

// checkAPI refuses a route of an API that the template does not declare: SAM
// would make a second one for it.
func (e *evaluator) checkAPI(o *object) {
	id := o.needText("ApiId")
	for _, r := range e.resources {
		if r.kind == "AWS::Serverless::HttpApi" && r.ref == id {
			return
		}
	}
	if id != "" {
		e.failf(o.get("ApiId"), "%s must be a Ref to an AWS::Serverless::HttpApi of the template", o.child("ApiId"))
	}
}

// checkRoutes refuses a route that is declared twice: which function would get
// the request would be chance.
func (e *evaluator) checkRoutes(t *Template, section *object) {
	owner := map[string]string{}
	for _, r := range t.Routes() {
		if other, taken := owner[r.Key()]; taken {
			e.failf(section.node, "%s: both %s and %s declare the route %s", section.path, other, r.LogicalID, r.Key())
		}
		owner[r.Key()] = r.LogicalID
	}
}

func (e *evaluator) httpAPI(d declaration) {
	o := d.properties
	for id, r := range e.resources {
		if r.kind == d.kind && id != d.id {
			e.failf(d.body.node, "%s: the local runner serves one AWS::Serverless::HttpApi, and %s is another", d.body.path, id)
		}
	}
	o.ignore(ignoredOfHTTPAPI...)
	if o.get("StageName") != nil {
		// A named stage would stand in front of every path.
		o.oneOf("StageName", "$default")
	}
	o.done()
}

var rate = regexp.MustCompile(`\Arate\(([1-9]\d{0,5}) (minute|hour|day)s?\)\z`)

func (e *evaluator) schedule(f *Function, name string, o *object, local time.Duration) Schedule {
	s := Schedule{
		Name:      f.LogicalID + name,
		Handler:   f.Handler,
		LogicalID: f.LogicalID,
		Local:     local,
		Input:     strings.TrimSpace(o.text("Input")),
	}
	expression := o.needText("ScheduleExpression")
	match := rate.FindStringSubmatch(expression)
	if match == nil {
		e.failf(o.node, "%s: %q is not understood; it must be rate(N minutes), hours or days",
			o.child("ScheduleExpression"), expression)
	} else {
		s.Every = period(match[1], match[2])
	}
	if local == 0 {
		e.failf(o.node, "%s: the function's Metadata.Drawbridge.LocalPeriod must state the period on a laptop", o.path)
	}
	o.ignore(ignoredOfSchedule...)
	o.done()
	return s
}

func period(count, unit string) time.Duration {
	n, _ := strconv.Atoi(count) // at most six digits, by the expression above
	switch unit {
	case "hour":
		return time.Duration(n) * time.Hour
	case "day":
		return time.Duration(n) * 24 * time.Hour
	default:
		return time.Duration(n) * time.Minute
	}
}
