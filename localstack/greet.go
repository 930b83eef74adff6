package main

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// greet tells a new user what there is and what to try.
func (h *hub) greet(out io.Writer, took time.Duration) {
	url := "http://" + reachable(h.api.Addr())
	fmt.Fprintf(out, "Drawbridge is ready after %s.\n\n", took.Round(time.Millisecond))
	fmt.Fprintf(out, "  hub        %s\n", url)
	fmt.Fprintf(out, "  state      %s\n", h.stateText())
	fmt.Fprintf(out, "  schedules  %s\n", h.scheduleText())
	fmt.Fprintf(out, "  token      %s\n", h.token.place)
	if len(h.made) > 0 {
		fmt.Fprintf(out, "  made       %s\n", strings.Join(h.made, ", "))
	}
	if h.options.faults != "" {
		fmt.Fprintf(out, "  faults     %s\n", h.options.faults)
	}
	for _, l := range []net.Listener{h.api, h.aws} {
		if l == nil {
			continue
		}
		if host, _, err := net.SplitHostPort(l.Addr().String()); err == nil && !isLocal(host) {
			fmt.Fprintf(out, "  warning    %s can be reached from other machines, without encryption\n", l.Addr())
		}
	}
	fmt.Fprintf(out, "\nTry:\n\n")
	fmt.Fprintf(out, "  TOKEN=\"%s\"\n", h.token.shell)
	fmt.Fprintf(out, "  curl -s %s/health\n", url)
	fmt.Fprintf(out, "  curl -s %s/bridge/register -H \"Authorization: Bearer $TOKEN\" -d '{\"agent_id\":\"a1\",\"cli\":\"claude\",\"timeout_sec\":600}'\n", url)
	fmt.Fprintf(out, "  curl -s %s/bridge/agents -H \"Authorization: Bearer $TOKEN\"\n", url)
	fmt.Fprintf(out, "\nCtrl-C stops it.\n")
}

func (h *hub) stateText() string {
	switch {
	case h.embedded == nil:
		return "at " + *h.cfg.BaseEndpoint
	case h.options.memory:
		return "in memory; the embedded AWS answers at http://" + reachable(h.aws.Addr())
	default:
		return fmt.Sprintf("in %s; the embedded AWS answers at http://%s", h.stateFolder(), reachable(h.aws.Addr()))
	}
}

func (h *hub) scheduleText() string {
	if h.options.tick == 0 {
		return "none is fired (-tick 0)"
	}
	var parts []string
	for _, j := range h.jobs {
		period := time.Duration(float64(j.schedule.Local) / h.options.tick)
		parts = append(parts, fmt.Sprintf("%s every %s", j.schedule.Handler, period.Round(time.Millisecond)))
	}
	return strings.Join(parts, ", ")
}

// reachable writes a listener's address as a client on this machine can use it.
func reachable(a net.Addr) string {
	if tcp, ok := a.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(tcp.Port))
	}
	return a.String()
}
