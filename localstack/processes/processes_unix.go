//go:build unix

package processes

import (
	"os"
	"os/exec"
	"syscall"
)

// Apart gives a command that is not started yet a group of its own: Ctrl-C does not
// reach it, and KillAll reaches what it starts too.
func Apart(command *exec.Cmd) { command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// End asks a process to end in order. os.ErrProcessDone says that it has ended.
func End(p *os.Process) error { return p.Signal(syscall.SIGTERM) }

// KillAll kills the processes of the group of a command that runs Apart.
func KillAll(command *exec.Cmd) {
	_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL) // they may have ended
}
