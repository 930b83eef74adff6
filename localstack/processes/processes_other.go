//go:build !unix

package processes

import (
	"os"
	"os/exec"
)

// Apart does nothing here.
func Apart(*exec.Cmd) {}

// End kills the process: it cannot be asked. os.ErrProcessDone says that it has
// ended.
func End(p *os.Process) error { return p.Kill() }

// KillAll kills the command's own process.
func KillAll(command *exec.Cmd) {
	_ = command.Process.Kill() // it may have ended
}
