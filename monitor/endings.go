package monitor

import "golang.org/x/sys/unix"

// endings tells which main processes have ended, by their pidfds, which unlike
// numbers stand for these processes alone. All of them cost one call a sample.
type endings struct {
	epoll  int
	pidfds []int
	events [16]unix.EpollEvent
}

func newEndings() (*endings, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	return &endings{epoll: fd}, err
}

// watch has the end of a process told by the index. ESRCH: it has ended. Other
// errors: the kernel has no pidfds (before Linux 5.3).
func (e *endings) watch(pid, index int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	e.pidfds = append(e.pidfds, fd)
	return unix.EpollCtl(e.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: int32(index)})
}

// ended calls end with the index of each process that ended since it was last
// called; when many end at once, the rest are for the next time.
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
