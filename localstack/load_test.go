package main

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"drawbridge/localstack/client"
)

// loaded runs the command load and returns its exit code and what it printed.
func loaded(t *testing.T, token string, args ...string) (int, string) {
	t.Helper()
	var out bytes.Buffer
	code := run(t.Context(), append([]string{"load"}, args...), terminal{out: &out, err: &out, getenv: func(name string) string {
		if name == tokenVariable {
			return token
		}
		return ""
	}})
	return code, out.String()
}

func TestALoadEndsWithACleanAudit(t *testing.T) {
	p := prepare(t, t.TempDir(), "-memory").begin()
	code, out := loaded(t, p.token, "-url", p.url, "-agents", "6", "-duration", "700ms", "-pause", "10ms", "-progress", "200ms")
	if code != 0 {
		t.Fatalf("exit code %d:\n%s", code, out)
	}
	for _, part := range []string{"6 agents named load-", "calls/s", "queue/complete", "assign/result", "Every accepted message was drained once"} {
		if !strings.Contains(out, part) {
			t.Errorf("%q was not printed:\n%s", part, out)
		}
	}
	if strings.Contains(out, " answers ") {
		t.Errorf("calls were refused:\n%s", out)
	}
}

func TestALoadStartsADurableHubOfItsOwn(t *testing.T) {
	t.Setenv(asCommand, "1") // for the process that it starts
	code, out := loaded(t, "", "-start", "-history", "40", "-agents", "2", "-duration", "200ms", "-pause", "10ms")
	if code != 0 || !strings.Contains(out, "Audit: ") || !strings.Contains(out, "A history of 40 messages") {
		t.Fatalf("exit code %d:\n%s", code, out)
	}
}

func TestOfAHistoryAsManyRowsGoAsCome(t *testing.T) {
	t.Setenv(asCommand, "1")
	own, stop, err := ownHub(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	f := newFleet(loadOptions{agents: 2}, client.New(own.URL, own.Token, 2), "run")
	h, err := makeHistory(t.Context(), f, own, 50, &bytes.Buffer{})
	if err != nil || len(h.keys) != 50 {
		t.Fatalf("%v, %d rows of it are known, want 50", err, len(h.keys))
	}
	for _, left := range []int{20, 0} {
		for range 30 {
			f.publish(t.Context(), 0, f.name(1))
		}
		if err := h.forget(t.Context()); err != nil || len(h.keys) != left {
			t.Errorf("%v, %d old rows are left, want %d", err, len(h.keys), left)
		}
	}
	if rows, err := own.Rows(); err != nil || rows != h.level+10 {
		t.Errorf("%d rows, %v; want the %d from before and the 10 that were too many", rows, err, h.level)
	}
}

// A hub that accepts messages and never hands them out.
func TestALoadFailsWhenMessagesAreLost(t *testing.T) {
	lossy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := `{"ok":true,"data":{}}`
		if strings.HasSuffix(r.URL.Path, "/publish") {
			answer = `{"ok":true,"data":{"message_id":"m1","fanout_count":1}}`
		}
		_, _ = w.Write([]byte(answer))
	}))
	defer lossy.Close()
	code, out := loaded(t, "token", "-url", lossy.URL, "-agents", "2", "-duration", "100ms", "-pause", "1ms", "-settle", "50ms")
	if code != exitFailed || !strings.Contains(out, "1 deliveries of accepted messages were not drained") {
		t.Fatalf("exit code %d:\n%s", code, out)
	}
}

func TestALoadRefusesWhatItCannotBe(t *testing.T) {
	for _, args := range [][]string{
		{"-history", "10"}, {"-start", "-history", "-1"}, {"-start", "-history", "1000001"}, {"-agents", "1"}, {"-agents", "2001"}, {"-duration", "0s"}, {"-duration", "25h"}, {"-pause", "-1s"}, {"-progress", "0s"}, {"-settle", "0s"}, {"x"},
	} {
		if code, out := loaded(t, "token", args...); code != exitUsage {
			t.Errorf("%v: exit code %d: %s", args, code, out)
		}
	}
	if code, out := loaded(t, "", "-data", t.TempDir()); code != exitFailed || !strings.Contains(out, "there is no token") {
		t.Errorf("without a token: exit code %d: %s", code, out)
	}
}

func TestTheAuditFindsEveryFault(t *testing.T) {
	lost := errors.New("no answer")
	refused := &client.Refusal{Code: "THROTTLED"}
	for _, c := range []struct {
		name    string
		happens func(l *ledger)
		finds   []string
	}{
		{"all in order", func(l *ledger) {
			l.acknowledged("m", 1) // before the sender read that it was accepted
			l.published("m", 2, nil)
			l.acknowledged("m", 2)
			l.published("", 0, refused)
			l.jobs.began("j", nil)
			l.jobs.ended("j", nil)
			l.jobs.ended("j", refused)
		}, nil},
		{"a lost message", func(l *ledger) { l.published("m", 2, nil); l.acknowledged("m", 1) }, []string{"1 deliveries of accepted messages were not drained"}},
		{"a lost acknowledgement", func(l *ledger) { l.published("m", 1, nil); l.unanswered(1) }, nil},
		{"a message drained twice", func(l *ledger) { l.published("m", 1, nil); l.acknowledged("m", 1); l.acknowledged("m", 1) }, []string{"message m was drained 2 times by agent 1"}},
		{"a message drained by a stranger", func(l *ledger) { l.published("m", 1, nil); l.acknowledged("m", 1); l.acknowledged("m", 2) }, []string{"message m was drained by 2 agents and has 1 recipients"}},
		{"a message that nobody sent", func(l *ledger) { l.acknowledged("m", 1) }, []string{"1 messages were drained that nobody knows to have sent"}},
		{"a message whose sender got no answer", func(l *ledger) { l.published("", 0, lost); l.acknowledged("m", 1) }, nil},
		{"a claim that got no answer", func(l *ledger) {
			l.jobs.began("j", nil)
			l.jobs.mayBeHeld(&client.Refusal{Status: http.StatusServiceUnavailable})
		}, nil},
		{"a claim that was refused", func(l *ledger) { l.jobs.began("j", nil); l.jobs.mayBeHeld(refused) }, []string{"1 of 1 jobs were not ended"}},
		{"a job without an end", func(l *ledger) { l.jobs.began("j", nil) }, []string{"1 of 1 jobs were not ended"}},
		{"a job whose report got no answer", func(l *ledger) { l.jobs.began("j", nil); l.jobs.ended("j", lost) }, nil},
		{"a job with two ends", func(l *ledger) { l.jobs.began("j", nil); l.jobs.ended("j", nil); l.jobs.ended("j", nil) }, []string{"job j was ended 2 times"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLedger()
			c.happens(l)
			found := append(l.findings(), l.jobs.findings("job", "ended")...)
			if !slices.Equal(found, c.finds) {
				t.Errorf("the audit finds %q, want %q", found, c.finds)
			}
			if settled := l.settled(); settled && len(c.finds) == 1 && strings.Contains(c.finds[0], "not ") {
				t.Error("it reads settled with something owed")
			}
		})
	}
}
