package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// listen opens a TCP listener for what. When the port is taken the error tells by
// whom, as far as the system lets one know, and which flag chooses another.
func listen(address, what, flag string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err == nil {
		return l, nil
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("listen for %s: %w", what, err)
	}
	_, port, _ := net.SplitHostPort(address) // net.Listen has understood it
	return nil, fmt.Errorf("%s of %s is taken by %s; stop it, or choose another with -%s", address, what, holder(port), flag)
}

// holder names the process that listens on a port.
func holder(port string) string {
	unknown := "another process (find it with: lsof -nP -iTCP:" + port + " -sTCP:LISTEN)"
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return unknown
	}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(table)
		if err != nil {
			continue
		}
		for _, inode := range listeners(string(text), uint16(n)) {
			if name := processOf(inode); name != "" {
				return name
			}
		}
	}
	return unknown
}

// listenState is TCP_LISTEN in the st column of /proc/net/tcp.
const listenState = "0A"

// listeners gives the inodes of the sockets that listen on a port, from a table in
// the form of /proc/net/tcp: slot, local address:port in hex, remote, state, ...,
// inode in the tenth column.
func listeners(table string, port uint16) []string {
	var inodes []string
	suffix := fmt.Sprintf(":%04X", port)
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) >= 10 && f[3] == listenState && strings.HasSuffix(f[1], suffix) {
			inodes = append(inodes, f[9])
		}
	}
	return inodes
}

// processOf finds the process that has a socket open: "process 42 (name)". Only
// the user's own processes can be looked into.
func processOf(inode string) string {
	descriptors, _ := filepath.Glob("/proc/[0-9]*/fd/*") // the pattern is well-formed
	for _, fd := range descriptors {
		if target, err := os.Readlink(fd); err != nil || target != "socket:["+inode+"]" {
			continue
		}
		process := filepath.Dir(filepath.Dir(fd))
		name, err := os.ReadFile(filepath.Join(process, "comm"))
		if err != nil {
			return "process " + filepath.Base(process)
		}
		return fmt.Sprintf("process %s (%s)", filepath.Base(process), strings.TrimSpace(string(name)))
	}
	return ""
}
