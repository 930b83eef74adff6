package bench

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// ticksPerSecond is USER_HZ, in which Linux shows the time of processes to user
// space on every architecture that Go runs on.
const ticksPerSecond = 100

// CPU is the processor time, user and system, that a process has used. It is
// known on Linux only (proc(5), fields 14 and 15 of stat).
func CPU(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("read the time a process has used: %w", err)
	}
	// The name, in brackets, may hold anything; the third field follows it.
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("read the time a process has used: %q has no such field", text)
	}
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read the time a process has used: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond, nil
}

// Memory is what a process holds in memory that is its own (its heap, its
// stacks), without the files it maps, in bytes. It is known on Linux only
// (proc(5), RssAnon of status).
func Memory(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read the memory of a process: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if kB, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(kB), "kB")), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read the memory of a process: %w", err)
			}
			return n << 10, nil
		}
	}
	return 0, fmt.Errorf("the status of process %d tells no RssAnon", pid)
}
