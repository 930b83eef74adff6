package simulation

import (
	"math/rand/v2"

	"drawbridge/localstack/fakeaws"
)

// A misfortune is what happens to one request.
type misfortune struct {
	name   string
	action fakeaws.Action
	late   bool // its sender gives it up, and it arrives later or never
	writes bool // only a write meets it
}

func (m misfortune) none() bool { return m.name == "" }

// chance decides what goes wrong.
type chance struct {
	random *rand.Rand
	// faults is how many of a thousand requests meet a misfortune; 0 for none.
	faults int
}

var everyRequest = []misfortune{
	{name: "request lost", action: fakeaws.DropRequest()},
	{name: "answer lost", action: fakeaws.DropResponse()},
	{name: "answer lost", action: fakeaws.DropResponse()},
	{name: "answer torn", action: fakeaws.TearResponse()},
	{name: "500 after", action: fakeaws.ErrorAfter(500, "InternalServerError")},
	{name: "500", action: fakeaws.Error(500, "InternalServerError")},
	{name: "late", late: true},
}

var tableRequest = append([]misfortune{
	{name: "throttled", action: fakeaws.Error(400, "ProvisionedThroughputExceededException")},
	{name: "throttled", action: fakeaws.Error(400, "ThrottlingException")},
	{name: "conflict", action: fakeaws.TransactionConflict()},
}, everyRequest...)

var objectRequest = append([]misfortune{
	{name: "slow down", action: fakeaws.Error(503, "SlowDown")},
	{name: "409", writes: true, action: fakeaws.Error(409, "ConditionalRequestConflict")},
	{name: "200 with an error", action: fakeaws.ErrorWith200("InternalError")},
}, everyRequest...)

// misfortune draws one for a request, mostly none. The same one often strikes
// the repetition too.
func (ch *chance) misfortune(c *call, s sent) misfortune {
	if ch.faults == 0 {
		return misfortune{}
	}
	if c.again > 0 {
		c.again--
		if s.writes() || !c.misfortune.writes {
			return c.misfortune
		}
	}
	if ch.random.IntN(1000) >= ch.faults {
		return misfortune{}
	}
	kinds := objectRequest
	if s.http.Header.Get("X-Amz-Target") != "" {
		kinds = tableRequest
	}
	drawn := kinds[ch.random.IntN(len(kinds))]
	if drawn.writes && !s.writes() {
		return misfortune{}
	}
	c.misfortune, c.again = drawn, 0
	if ch.random.IntN(3) == 0 {
		c.again = 1 + ch.random.IntN(2)
	}
	return c.misfortune
}
