package objects

import (
	"crypto/md5"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"drawbridge/localstack/fakeaws/engine"
)

const day = 24 * time.Hour

// putLifecycle sends rules (their XML) as the bucket's lifecycle.
func (b *bench) putLifecycle(rules ...string) engine.Response {
	b.Helper()
	doc := "<LifecycleConfiguration>" + strings.Join(rules, "") + "</LifecycleConfiguration>"
	return b.do("PUT", "/bkt?lifecycle", withMD5(doc), doc)
}

func withMD5(doc string) headers {
	digest := md5.Sum([]byte(doc))
	return headers{"Content-MD5": base64.StdEncoding.EncodeToString(digest[:])}
}

// rule is the XML of an enabled rule.
func rule(id, prefix, actions string) string {
	return "<Rule><ID>" + id + "</ID><Status>Enabled</Status><Filter><Prefix>" + prefix + "</Prefix></Filter>" + actions + "</Rule>"
}

func expireAfter(days int) string {
	return fmt.Sprintf("<Expiration><Days>%d</Days></Expiration>", days)
}

func forgetOldAfter(days int) string {
	return fmt.Sprintf("<NoncurrentVersionExpiration><NoncurrentDays>%d</NoncurrentDays></NoncurrentVersionExpiration>", days)
}

func abortAfter(days int) string {
	return fmt.Sprintf("<AbortIncompleteMultipartUpload><DaysAfterInitiation>%d</DaysAfterInitiation></AbortIncompleteMultipartUpload>", days)
}

const forgetBareMarkers = "<Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>"

// collect carries the rules out and checks what they took away.
func (b *bench) collect(want Collection) {
	b.Helper()
	if got, err := b.e.CollectExpired(b.Context()); got != want || err != nil {
		b.Fatalf("collected %+v, %v, want %+v", got, err, want)
	}
}

// contents lists the bucket: each version with its key, "key" alone for an
// object and "key!" for a marker, "+" before the current one.
func (b *bench) contents() string {
	b.Helper()
	b.e.mu.RLock()
	defer b.e.mu.RUnlock()
	var out []string
	for _, en := range b.e.buckets["bkt"].entries.Items() {
		for i, v := range en.versions {
			text := en.key
			if v.marker {
				text += "!"
			}
			if i == len(en.versions)-1 {
				text = "+" + text
			}
			out = append(out, text)
		}
	}
	return strings.Join(out, " ")
}

func TestLifecycleRulesAreKeptAndTold(t *testing.T) {
	j := newTestJournal()
	b := openBench(t, j)
	b.want(b.do("PUT", "/bkt", nil, ""), 200, "")
	b.want(b.do("GET", "/bkt?lifecycle", nil, ""), 404, "NoSuchLifecycleConfiguration")
	older := "<Rule><Prefix>old/</Prefix><Status>Disabled</Status>" + abortAfter(7) + "</Rule>"
	put := b.putLifecycle(rule("a&amp;b", "p/&lt;", expireAfter(3)+forgetOldAfter(2)), older,
		"<Rule><ID>all</ID><Filter/><Status>Enabled</Status>"+forgetBareMarkers+"</Rule>")
	b.want(put, 200, "")
	if got := put.Header.Get("X-Amz-Transition-Default-Minimum-Object-Size"); got != "all_storage_classes_128K" {
		t.Errorf("transition size %q", got)
	}
	told := b.do("GET", "/bkt?lifecycle", nil, "")
	b.want(told, 200, "")
	l := document[lifecycle](b, told)
	if l.XMLName.Space != xmlNamespace || len(l.Rules) != 3 {
		t.Fatalf("told\n%s", told.Body)
	}
	first, second, third := l.Rules[0], l.Rules[1], l.Rules[2]
	if *first.ID != "a&b" || *first.Filter.Prefix != "p/<" || first.Prefix != nil || first.Status != "Enabled" ||
		*first.Expiration.Days != 3 || *first.Noncurrent.Days != 2 || first.Abort != nil {
		t.Errorf("first rule\n%s", told.Body)
	}
	if len(*second.ID) < 20 || second.Filter != nil || *second.Prefix != "old/" || second.Status != "Disabled" || *second.Abort.Days != 7 {
		t.Errorf("a rule without an id gets one, and its prefix stays where it was:\n%s", told.Body)
	}
	if third.Filter == nil || third.prefix() != "" || !*third.Expiration.Markers {
		t.Errorf("third rule\n%s", told.Body)
	}

	again := openBench(t, newTestJournal(j.units...))
	if got := again.do("GET", "/bkt?lifecycle", nil, ""); string(got.Body) != string(told.Body) {
		t.Errorf("after a restart\n%s\nwant\n%s", got.Body, told.Body)
	}

	b.want(b.putLifecycle(rule("only", "", expireAfter(1))), 200, "")
	if got := document[lifecycle](b, b.do("GET", "/bkt?lifecycle", nil, "")); len(got.Rules) != 1 || *got.Rules[0].ID != "only" {
		t.Errorf("a put replaces all rules: %+v", got)
	}
	b.want(b.do("DELETE", "/bkt?lifecycle", nil, ""), 204, "")
	b.want(b.do("DELETE", "/bkt?lifecycle", nil, ""), 204, "")
	b.want(b.do("GET", "/bkt?lifecycle", nil, ""), 404, "NoSuchLifecycleConfiguration")
	if n := j.count(spaceLifecycle); n != 0 {
		t.Errorf("%d records left", n)
	}
	b.want(b.putLifecycle(rule("only", "", expireAfter(1))), 200, "")
	b.want(b.do("DELETE", "/bkt", nil, ""), 204, "")
	b.want(b.do("PUT", "/bkt", nil, ""), 200, "")
	b.want(b.do("GET", "/bkt?lifecycle", nil, ""), 404, "NoSuchLifecycleConfiguration")
	if n := j.count(spaceLifecycle); n != 0 {
		t.Errorf("%d records left of a deleted bucket", n)
	}
}

func TestLifecycleRulesThatS3RefusesAreRefused(t *testing.T) {
	b := newBench(t)
	b.want(b.putLifecycle(rule("kept", "", expireAfter(1))), 200, "")
	anyRule := func(inner string) string { return "<Rule><Status>Enabled</Status>" + inner + "</Rule>" }
	many := make([]string, maxLifecycleRules+1)
	for i := range many {
		many[i] = rule(fmt.Sprint(i), "", expireAfter(1))
	}
	for _, c := range []struct {
		name, rules string
		status      int
		code, tells string
	}{
		{"none", "", 400, "InvalidRequest", "At least one lifecycle rule"},
		{"too many", strings.Join(many, ""), 400, "InvalidRequest", "1000 rules"},
		{"not XML", "<Rule>", 400, "MalformedXML", ""},
		{"no status", "<Rule><Prefix/>" + expireAfter(1) + "</Rule>", 400, "MalformedXML", ""},
		{"another status", "<Rule><Status>On</Status><Prefix/>" + expireAfter(1) + "</Rule>", 400, "MalformedXML", ""},
		{"neither filter nor prefix", anyRule(expireAfter(1)), 400, "MalformedXML", ""},
		{"both filter and prefix", anyRule("<Prefix>a</Prefix><Filter><Prefix>a</Prefix></Filter>" + expireAfter(1)), 400, "MalformedXML", ""},
		{"no action", anyRule("<Prefix/>"), 400, "InvalidRequest", "At least one action"},
		{"an id twice", rule("x", "a", expireAfter(1)) + rule("x", "b", expireAfter(1)), 400, "InvalidArgument", "must be unique"},
		{"a long id", rule(strings.Repeat("x", 256), "", expireAfter(1)), 400, "InvalidArgument", "255"},
		{"a long prefix", rule("x", strings.Repeat("p", 1025), expireAfter(1)), 400, "InvalidRequest", "1024"},
		{"no days", rule("x", "", expireAfter(0)), 400, "InvalidArgument", "positive integer"},
		{"negative days", rule("x", "", forgetOldAfter(-1)), 400, "InvalidArgument", "NoncurrentVersionExpiration"},
		{"no days of uploads", rule("x", "", abortAfter(0)), 400, "InvalidArgument", "AbortIncompleteMultipartUpload"},
		{"days beyond a number", rule("x", "", "<Expiration><Days>4294967296</Days></Expiration>"), 400, "MalformedXML", ""},
		{"half a day", rule("x", "", "<Expiration><Days>0.5</Days></Expiration>"), 400, "MalformedXML", ""},
		{"an empty expiration", rule("x", "", "<Expiration/>"), 400, "MalformedXML", ""},
		{"days and markers", rule("x", "", "<Expiration><Days>1</Days><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>"), 400, "MalformedXML", ""},
		{"empty noncurrent", rule("x", "", "<NoncurrentVersionExpiration/>"), 400, "MalformedXML", ""},
		{"empty abort", rule("x", "", "<AbortIncompleteMultipartUpload/>"), 400, "MalformedXML", ""},
		{"a date", rule("x", "", "<Expiration><Date>2027-01-01T00:00:00Z</Date></Expiration>"), 501, "NotImplemented", "element Date"},
		{"a transition", rule("x", "", "<Transition><Days>30</Days><StorageClass>GLACIER</StorageClass></Transition>"), 501, "NotImplemented", "element Transition"},
		{"a noncurrent transition", rule("x", "", "<NoncurrentVersionTransition/>"), 501, "NotImplemented", "element NoncurrentVersionTransition"},
		{"newer versions", rule("x", "", "<NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays><NewerNoncurrentVersions>3</NewerNoncurrentVersions></NoncurrentVersionExpiration>"), 501, "NotImplemented", "element NewerNoncurrentVersions"},
		{"a tag", anyRule("<Filter><Tag><Key>k</Key><Value>v</Value></Tag></Filter>" + expireAfter(1)), 501, "NotImplemented", "element Tag"},
		{"and", anyRule("<Filter><And><Prefix>p</Prefix></And></Filter>" + expireAfter(1)), 501, "NotImplemented", "element And"},
		{"a size", anyRule("<Filter><ObjectSizeGreaterThan>1</ObjectSizeGreaterThan></Filter>" + expireAfter(1)), 501, "NotImplemented", "element ObjectSizeGreaterThan"},
		{"something new", "<New/>" + rule("x", "", expireAfter(1)), 501, "NotImplemented", "element New"},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp := b.putLifecycle(c.rules)
			if resp.Status != c.status || resp.ErrorCode != c.code || !strings.Contains(element(resp, "Message"), c.tells) {
				t.Errorf("answer %d %s, want %d %s %q\n%s", resp.Status, resp.ErrorCode, c.status, c.code, c.tells, resp.Body)
			}
		})
	}
	whole := "<LifecycleConfiguration>" + rule("x", "", expireAfter(1)) + "</LifecycleConfiguration>"
	b.want(b.do("PUT", "/bkt?lifecycle", nil, whole), 400, "InvalidRequest") // no digest
	b.want(b.do("PUT", "/bkt?lifecycle", withMD5("another"), whole), 400, "BadDigest")
	varied := withMD5(whole)
	varied[transitionSizeHeader] = "varies_by_storage_class"
	b.want(b.do("PUT", "/bkt?lifecycle", varied, whole), 501, "NotImplemented")
	b.want(b.do("PUT", "/nobucket?lifecycle", withMD5(whole), whole), 404, "NoSuchBucket")
	if got := document[lifecycle](b, b.do("GET", "/bkt?lifecycle", nil, "")); len(got.Rules) != 1 || *got.Rules[0].ID != "kept" {
		t.Errorf("a refused put changed the rules: %+v", got)
	}
}

// The bucket policy's actions are those of S3's authorization reference.
func TestLifecycleHasItsPolicyActions(t *testing.T) {
	b := newBench(t)
	policy := `{"Statement":{"Effect":"Deny","Principal":"*","Action":"s3:PutLifecycleConfiguration","Resource":"arn:aws:s3:::bkt"}}`
	b.want(b.do("PUT", "/bkt?policy", nil, policy), 204, "")
	b.want(b.putLifecycle(rule("x", "", expireAfter(1))), 403, "AccessDenied")
	b.want(b.do("DELETE", "/bkt?lifecycle", nil, ""), 403, "AccessDenied")
	b.want(b.do("GET", "/bkt?lifecycle", nil, ""), 404, "NoSuchLifecycleConfiguration")
}

// A life of three days that begins at noon of the 1st ends at midnight before
// the 5th: the days are counted from the instant, then the day is filled up.
func TestALifeEndsAtTheMidnightAfterItsDays(t *testing.T) {
	for _, c := range []struct {
		begun, now string
		days       int32
		over       bool
	}{
		{"2026-12-01T12:00:00Z", "2026-12-04T12:00:00Z", 3, false},
		{"2026-12-01T12:00:00Z", "2026-12-04T23:59:59Z", 3, false},
		{"2026-12-01T12:00:00Z", "2026-12-05T00:00:00Z", 3, true},
		{"2026-12-01T00:00:00Z", "2026-12-02T00:00:00Z", 1, false}, // at midnight: the next one
		{"2026-12-01T00:00:00Z", "2026-12-03T00:00:00Z", 1, true},
		{"2026-12-01T23:59:59Z", "2026-12-03T00:00:00Z", 1, true},
		{"2026-12-31T10:00:00Z", "2027-01-31T00:00:00Z", 30, true},
		{"2026-12-01T12:00:00Z", "2026-11-01T12:00:00Z", 1, false}, // a clock that went back
		{"2026-12-01T12:00:00Z", "9999-01-01T00:00:00Z", 0, false}, // no end
		{"2026-12-01T12:00:00Z", "9999-01-01T00:00:00Z", 1<<31 - 1, false},
	} {
		begun, now := instant(t, c.begun), instant(t, c.now)
		if got := (&step{now: now}).isOver(begun, c.days); got != c.over {
			t.Errorf("%s and %d days, at %s: over %v", c.begun, c.days, c.now, got)
		}
	}
}

func instant(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestRulesTakeAwayWhatTheySay(t *testing.T) {
	del := func(b *bench, key string) { b.Helper(); b.want(b.do("DELETE", keyPath(key), nil, ""), 204, "") }
	put := func(b *bench, keys ...string) {
		b.Helper()
		for _, key := range keys {
			b.want(b.put(key, "x", nil), 200, "")
		}
	}
	for _, c := range []struct {
		name       string
		versioning string
		rules      []string
		given      func(b *bench)
		after      time.Duration
		want       Collection
		left       string
	}{
		{"nothing before the time", "", []string{rule("r", "", expireAfter(2))},
			func(b *bench) { put(b, "k") }, 2 * day, Collection{}, "+k"},
		{"a current object goes for good without versioning", "", []string{rule("r", "p/", expireAfter(1))},
			func(b *bench) { put(b, "a", "p/1", "p/2", "q") }, 3 * day, Collection{Expired: 2}, "+a +q"},
		{"a current object goes under a marker with versioning", "Enabled", []string{rule("r", "", expireAfter(1))},
			func(b *bench) { put(b, "k", "k") }, 3 * day, Collection{Expired: 1}, "k k +k!"},
		{"a null version goes for good with versioning suspended", "", []string{rule("r", "", expireAfter(2))},
			func(b *bench) { put(b, "k"); b.setVersioning("Suspended") }, 4 * day, Collection{Expired: 1}, "+k!"},
		{"a version that came before the suspension stays", "Enabled", []string{rule("r", "", expireAfter(2))},
			func(b *bench) { put(b, "k"); b.setVersioning("Suspended") }, 4 * day, Collection{Expired: 1}, "k +k!"},
		{"old versions go, the current one stays", "Enabled", []string{rule("r", "", forgetOldAfter(1))},
			func(b *bench) { put(b, "k", "k", "k") }, 9 * day, Collection{Old: 2}, "+k"},
		{"old markers are old versions", "Enabled", []string{rule("r", "", forgetOldAfter(1))},
			func(b *bench) { put(b, "k"); del(b, "k"); del(b, "k"); put(b, "k") }, 9 * day, Collection{Old: 3}, "+k"},
		{"a marker alone stays without a rule for it", "Enabled", []string{rule("r", "", forgetOldAfter(1))},
			func(b *bench) { put(b, "k"); del(b, "k") }, 9 * day, Collection{Old: 1}, "+k!"},
		{"a marker alone goes by its rule at once", "Enabled", []string{rule("r", "", forgetBareMarkers)},
			func(b *bench) { del(b, "k") }, 0, Collection{Markers: 1}, ""},
		{"a marker over versions stays", "Enabled", []string{rule("r", "", forgetBareMarkers)},
			func(b *bench) { put(b, "k"); del(b, "k") }, 99 * day, Collection{}, "k +k!"},
		{"a marker goes with the last version that it hid", "Enabled", []string{rule("r", "", forgetBareMarkers+forgetOldAfter(1))},
			func(b *bench) { put(b, "k", "k"); del(b, "k") }, 3 * day, Collection{Old: 2, Markers: 1}, ""},
		{"a marker alone goes by the days of objects", "Enabled", []string{rule("r", "", expireAfter(5))},
			func(b *bench) { del(b, "k") }, 7 * day, Collection{Markers: 1}, ""},
		{"a rule that says false of markers", "Enabled", []string{rule("r", "", "<Expiration><ExpiredObjectDeleteMarker>false</ExpiredObjectDeleteMarker></Expiration>")},
			func(b *bench) { del(b, "k") }, 99 * day, Collection{}, "+k!"},
		{"a disabled rule", "", []string{"<Rule><Status>Disabled</Status><Prefix/>" + expireAfter(1) + "</Rule>"},
			func(b *bench) { put(b, "k") }, 99 * day, Collection{}, "+k"},
		{"the shortest life holds", "", []string{rule("a", "", expireAfter(9)), rule("b", "k", expireAfter(1)), rule("c", "k/", expireAfter(5))},
			func(b *bench) { put(b, "j", "k", "k/1") }, 3 * day, Collection{Expired: 2}, "+j"},
		{"the older place of a prefix", "", []string{"<Rule><Status>Enabled</Status><Prefix>p/</Prefix>" + expireAfter(1) + "</Rule>"},
			func(b *bench) { put(b, "k", "p/k") }, 3 * day, Collection{Expired: 1}, "+k"},
		{"no rules", "", nil, func(b *bench) { put(b, "k") }, 999 * day, Collection{}, "+k"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			if c.versioning != "" {
				b.setVersioning(c.versioning)
			}
			if len(c.rules) > 0 {
				b.want(b.putLifecycle(c.rules...), 200, "")
			}
			c.given(b)
			b.clock.Advance(c.after)
			b.collect(c.want)
			if got := b.contents(); got != c.left {
				t.Errorf("left %q, want %q", got, c.left)
			}
			b.collect(Collection{})
		})
	}
}

func TestNoncurrentDaysCountFromTheSuccessor(t *testing.T) {
	b := newBench(t)
	b.setVersioning("Enabled")
	b.want(b.putLifecycle(rule("r", "", forgetOldAfter(2))), 200, "")
	b.want(b.put("k", "1", nil), 200, "")
	b.clock.Advance(30 * day)
	b.want(b.put("k", "2", nil), 200, "")
	b.clock.Advance(2 * day)
	b.collect(Collection{}) // the first version is 32 days old and noncurrent for 2
	b.clock.Advance(day)
	b.collect(Collection{Old: 1})

	// A multipart upload is dated by its beginning: what it replaced did not
	// become noncurrent before it was written.
	u := b.upload("m", nil)
	u.part(1, "x")
	b.clock.Advance(30 * day)
	b.want(b.put("m", "before", nil), 200, "")
	b.want(u.complete(nil), 200, "")
	b.collect(Collection{})
	if got := b.contents(); got != "+k m +m" {
		t.Errorf("left %q", got)
	}
}

func TestUploadsThatWereNeverCompletedAreAborted(t *testing.T) {
	j := newTestJournal()
	b := openBench(t, j)
	b.want(b.do("PUT", "/bkt", nil, ""), 200, "")
	b.want(b.putLifecycle(rule("r", "p/", abortAfter(1))), 200, "")
	b.upload("p/a", nil).part(1, strings.Repeat("x", inlineLimit+1))
	kept := b.upload("q/a", nil)
	kept.part(1, "x")
	b.clock.Advance(2 * day)
	late := b.upload("p/b", nil)
	late.part(1, "x")
	b.collect(Collection{Uploads: 1})
	for _, u := range []*uploadBench{kept, late} {
		b.want(u.complete(nil), 200, "")
	}
	if n := j.count(spaceBody) + j.count(spacePart) + j.count(spaceUpload); n != 0 {
		t.Errorf("%d records of uploads left", n)
	}
	if got := b.contents(); got != "+p/b +q/a" {
		t.Errorf("left %q", got)
	}
}

// An upload's conditional completion conflicts after the key expired, as after
// any delete.
func TestAnExpiryIsADeleteToUploadsOfItsKey(t *testing.T) {
	b := newBench(t)
	b.want(b.putLifecycle(rule("r", "", expireAfter(1))), 200, "")
	b.want(b.put("k", "v", nil), 200, "")
	b.clock.Advance(2 * day)
	u := b.upload("k", nil)
	u.part(1, "x")
	b.collect(Collection{Expired: 1})
	b.want(u.complete(headers{"If-None-Match": "*"}), 409, "ConditionalRequestConflict")
}

// A pass of more than one step's bounds ends all the same, and each step is one
// unit of the journal.
func TestAPassGoesOnFromStepToStep(t *testing.T) {
	j := newTestJournal()
	b := openBench(t, j)
	b.want(b.do("PUT", "/bkt", nil, ""), 200, "")
	b.setVersioning("Enabled")
	b.want(b.putLifecycle(rule("r", "", forgetOldAfter(1)+abortAfter(1)), rule("m", "gone", forgetBareMarkers), rule("x", "exp", expireAfter(1))), 200, "")
	want := Collection{}
	for range 3*stepRemovals + 7 { // one key with more old versions than a step removes
		b.want(b.put("deep", "x", nil), 200, "")
		want.Old++
	}
	want.Old--
	for i := range stepRemovals + 3 {
		b.want(b.do("DELETE", keyPath(fmt.Sprintf("gone/%d", i)), nil, ""), 204, "")
		b.want(b.put(fmt.Sprintf("exp/%d", i), "x", nil), 200, "")
		b.upload("u", nil)
		want.Markers, want.Expired, want.Uploads = want.Markers+1, want.Expired+1, want.Uploads+1
	}
	for i := range stepLooks {
		b.want(b.put(fmt.Sprintf("wide/%d", i), "x", nil), 200, "")
	}
	b.clock.Advance(3 * day)
	before := len(j.units)
	b.collect(want)
	for _, unit := range j.units[before:] {
		if len(unit) > stepRemovals+1 {
			t.Errorf("a unit of %d writes", len(unit))
		}
	}
	if n := len(j.units) - before; n < 7 {
		t.Errorf("%d units", n)
	}
	b.collect(Collection{})
	if again := openBench(t, newTestJournal(j.units...)); again.contents() != b.contents() {
		t.Error("a restart shows something else")
	}
}

// What a collection has not finished is done by the next one.
func TestACollectionThatIsInterruptedLosesNothing(t *testing.T) {
	j := newTestJournal()
	b := openBench(t, j)
	b.want(b.do("PUT", "/bkt", nil, ""), 200, "")
	b.want(b.putLifecycle(rule("r", "", expireAfter(1))), 200, "")
	for i := range stepRemovals + 10 {
		b.want(b.put(fmt.Sprint(i), "x", nil), 200, "")
	}
	b.clock.Advance(3 * day)
	p := &pass{e: b.e, name: "bkt", total: &Collection{}}
	if p.step(); p.done || p.total.Expired != stepRemovals {
		t.Fatalf("the first step: %+v", p.total)
	}
	again := openBench(t, newTestJournal(j.units...))
	again.clock.Advance(3 * day)
	again.collect(Collection{Expired: 10})
	if got := again.contents(); got != "" {
		t.Errorf("left %q", got)
	}
}

// The bucket, and its rules, may be gone before the next step.
func TestAPassEndsWithItsBucket(t *testing.T) {
	for name, gone := range map[string]func(b *bench){
		"rules":  func(b *bench) { b.want(b.do("DELETE", "/bkt?lifecycle", nil, ""), 204, "") },
		"bucket": func(b *bench) { b.want(b.do("DELETE", "/bkt", nil, ""), 204, "") },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.want(b.putLifecycle(rule("r", "", expireAfter(1))), 200, "")
			p := &pass{e: b.e, name: "bkt", total: &Collection{}}
			p.step()
			gone(b)
			if p.step(); !p.done {
				t.Error("the pass goes on")
			}
		})
	}
}

// A brokenJournal takes writes and never makes them stable.
type brokenJournal struct{ *testJournal }

var errBroken = errors.New("disk full")

type brokenTicket struct{}

func (brokenTicket) Wait() error { return errBroken }

func (j brokenJournal) Append(writes []engine.Write) engine.Ticket {
	j.testJournal.Append(writes)
	return brokenTicket{}
}

func TestACollectionThatIsNotDurableTellsSo(t *testing.T) {
	b := openBench(t, brokenJournal{newTestJournal()})
	b.want(b.do("PUT", "/bkt", nil, ""), 200, "")
	b.want(b.putLifecycle(rule("r", "", expireAfter(1))), 200, "")
	b.want(b.put("k", "x", nil), 200, "")
	b.clock.Advance(3 * day)
	if _, err := b.e.CollectExpired(t.Context()); !errors.Is(err, errBroken) {
		t.Errorf("got %v", err)
	}
}
