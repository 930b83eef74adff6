// Package core is the hub itself: its entities, rules and operations, and the
// small store interfaces they need. It knows no AWS and no HTTP.
package core
