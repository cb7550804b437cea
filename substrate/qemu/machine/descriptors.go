package machine

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"vitrine/internal/netns"
	"vitrine/substrate"
)

// descriptors are the open files that QEMU inherits. QEMU's user has no permission to open
// them itself.
type descriptors struct {
	files  []*os.File
	number map[string]int // QEMU's descriptor number, by purpose: "kernel", "disk0"
}

// firstDescriptor is the number of the first inherited file.
const firstDescriptor = 3

// Names of descriptors. Ports have the names of the Spec.
const (
	kernelFile  = "kernel"
	initrdFile  = "initrd"
	consoleFile = "console"
	linkFile    = "link"
)

func diskFile(i int) string    { return fmt.Sprintf("disk%d", i) }
func backingFile(i int) string { return fmt.Sprintf("disk%d's backing file", i) }

func (d *descriptors) add(name string, f *os.File, err error) error {
	if err != nil {
		return err
	}
	if d.number == nil {
		d.number = make(map[string]int)
	}
	d.number[name] = firstDescriptor + len(d.files)
	d.files = append(d.files, f)
	return nil
}

func (d *descriptors) close() {
	for _, f := range d.files {
		_ = f.Close() // QEMU has its own descriptors
	}
}

// open opens everything that the Spec names except its ports. namespace is the link's
// namespace.
func (d *descriptors) open(s Spec, namespace string) error {
	for name, path := range map[string]string{kernelFile: s.Kernel, initrdFile: s.Initrd} {
		if path == "" {
			continue
		}
		f, err := readable(path)
		if err := d.add(name, f, err); err != nil {
			return err
		}
	}
	if s.Console != "" {
		f, err := substrate.OpenOutput(s.Console)
		if err := d.add(consoleFile, f, err); err != nil {
			return err
		}
	}
	for i, disk := range s.Disks {
		flag := os.O_RDWR
		if disk.ReadOnly {
			flag = os.O_RDONLY
		}
		f, err := os.OpenFile(disk.Path, flag, 0)
		if err := d.add(diskFile(i), f, err); err != nil {
			return err
		}
		if disk.Backing == "" {
			continue
		}
		f, err = os.Open(disk.Backing)
		if err := d.add(backingFile(i), f, err); err != nil {
			return err
		}
	}
	if s.Link == nil {
		return nil
	}
	f, err := s.Link.open(namespace)
	return d.add(linkFile, f, err)
}

// connect makes a connection for each name, and returns this process's ends.
func (d *descriptors) connect(names []string) (conns map[string]net.Conn, err error) {
	conns = make(map[string]net.Conn)
	defer func() {
		if err != nil {
			hangUp(conns)
		}
	}()
	for _, name := range names {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return conns, fmt.Errorf("connecting to the machine: %w", err)
		}
		if err := d.add(name, os.NewFile(uintptr(pair[1]), name), nil); err != nil {
			return conns, err
		}
		own := os.NewFile(uintptr(pair[0]), name)
		conns[name], err = net.FileConn(own)
		if err := errors.Join(err, own.Close()); err != nil {
			delete(conns, name)
			return conns, fmt.Errorf("connecting to the machine: %w", err)
		}
	}
	return conns, nil
}

// readable opens a file that QEMU opens again by its descriptor (/proc/self/fd/N), for which the
// kernel checks the file's mode. If only some users may read the file, readable returns a copy
// in memory.
func readable(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.Mode().Perm()&0o004 != 0 {
		return f, nil
	}
	defer f.Close()
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate(filepath.Base(path), unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("copying %s: %w", path, err)
	}
	memory := os.NewFile(uintptr(fd), path)
	if _, err := io.Copy(memory, f); err != nil {
		return nil, errors.Join(fmt.Errorf("copying %s: %w", path, err), memory.Close())
	}
	return memory, nil
}

// open opens the machine's end of the link: the tap, or the device of the macvtap.
func (l *Link) open(namespace string) (f *os.File, err error) {
	err = netns.Do(namespace, func() error {
		path := l.Device
		if path == "" {
			path = "/dev/net/tun"
		}
		if f, err = os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0); err != nil || l.Device != "" {
			return err
		}
		request, err := unix.NewIfreq(l.Tap)
		if err != nil {
			return err
		}
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR | unix.IFF_ONE_QUEUE)
		return unix.IoctlIfreq(int(f.Fd()), unix.TUNSETIFF, request)
	})
	if err != nil {
		if f != nil {
			_ = f.Close()
		}
		return nil, fmt.Errorf("opening the machine's interface: %w", err)
	}
	return f, nil
}
