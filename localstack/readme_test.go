package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// between gives the text of the README after one line and before the next fence.
func between(t *testing.T, fence string) string {
	t.Helper()
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), fence+"\n")
	block, _, closed := strings.Cut(rest, "\n```")
	if !ok || !closed {
		t.Fatalf("the README has no block %s", fence)
	}
	return block
}

func TestTheClientOfTheReadmeWorks(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("python3 is not installed")
		}
		t.Skip("python3 is not installed")
	}
	p := prepare(t, t.TempDir(), "-memory").begin()
	script := strings.NewReplacer(".drawbridge/token", p.folder+"/token", "http://127.0.0.1:27888", p.url).
		Replace(between(t, "```python"))
	if out, err := exec.Command(python, "-c", script).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if agents := p.agents(); agents["a1"].Status != "online" || agents["a1"].Generation != 1 {
		t.Errorf("the agents are %v", agents)
	}
}
