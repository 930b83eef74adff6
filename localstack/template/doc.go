// Package template reads the SAM template that describes a Drawbridge stack, so
// that a table, a route or a schedule is declared once for AWS and for the
// laptop.
//
// It understands parameters with defaults, Ref, Fn::Sub and Fn::GetAtt in their
// short and long forms, and Globals. Everything else is refused by its name and
// line: a template that would behave differently here than on AWS must not load.
// What has no meaning outside AWS (alarms, encryption at rest, log retention) is
// listed in ignored.go and nowhere else.
package template
