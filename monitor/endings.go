package monitor

import "golang.org/x/sys/unix"

// endings detects the end of main processes by their pidfds. Unlike a PID, a pidfd is never reused
// for another process. One system call per sample covers all processes.
type endings struct {
	epoll  int
	pidfds []int
	events [16]unix.EpollEvent
}

func newEndings() (*endings, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	return &endings{epoll: fd}, err
}

// watch makes ended report the end of a process with this index. It returns ESRCH if the process
// has ended. Other errors mean that the kernel has no pidfds (before Linux 5.3).
func (e *endings) watch(pid, index int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	e.pidfds = append(e.pidfds, fd)
	return unix.EpollCtl(e.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: int32(index)})
}

// ended calls end with the index of each process that ended since the last call. If many end at the
// same time, later calls report the rest.
func (e *endings) ended(end func(index int)) {
	n := epollLook(e.epoll, e.events[:])
	for _, event := range e.events[:n] {
		end(int(event.Fd))
	}
}

func (e *endings) close() {
	for _, fd := range e.pidfds {
		unix.Close(fd)
	}
	unix.Close(e.epoll)
}
