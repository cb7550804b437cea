package sipp

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/procfs"
)

// dropsEvery is the time between two readings of a SIPp's drops. The kernel forgets the drops when
// SIPp closes its sockets, so those of the last moments are not known.
const dropsEvery = time.Second

// wait waits until SIPp ends, and adds the messages that SIPp lost in its own receive buffers to
// the job's.
func (j *job) wait(cmd *exec.Cmd) error {
	ended, read := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(read)
		j.lost.Add(lastDrops(cmd.Process.Pid, ended))
	}()
	err := cmd.Wait()
	close(ended)
	<-read
	return err
}

// lastDrops reads the drops of a process until ended is closed, and returns the last reading. A
// reading that fails does not count, because the process may have just ended.
func lastDrops(pid int, ended <-chan struct{}) (last int64) {
	tick := time.NewTicker(dropsEvery)
	defer tick.Stop()
	for {
		if n, err := socketDrops(pid); err == nil {
			last = max(last, n)
		}
		select {
		case <-ended:
			return last
		case <-tick.C:
		}
	}
}

// socketDrops returns the number of datagrams that the kernel dropped because the receive buffers
// of the process's UDP sockets were full.
func socketDrops(pid int) (drops int64, err error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	opened, err := process.FileDescriptorTargets()
	if err != nil {
		return 0, err
	}
	namespace, err := procfs.NewFS(filepath.Join(procfs.DefaultMountPoint, strconv.Itoa(pid)))
	if err != nil {
		return 0, err
	}
	sockets, err := namespace.NetUDP()
	if err != nil {
		return 0, err
	}
	six, err := namespace.NetUDP6()
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // the kernel may have no IPv6
		return 0, err
	}
	for _, s := range append(sockets, six...) {
		if slices.Contains(opened, fmt.Sprintf("socket:[%d]", s.Inode)) {
			drops += int64(*s.Drops)
		}
	}
	return drops, nil
}
