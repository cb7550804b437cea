package tap

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"vitrine"
)

// Any stands for all interfaces that are up.
const Any = "any"

// An Interface is a network interface of this host, in the network namespace of the caller.
type Interface struct {
	Name     string
	Index    int
	Loopback bool
	Raw      bool // frames begin with IP, not with an Ethernet header
	Optional bool // found by Any: a capture goes on without it
}

// Find returns interfaces by their names. The errors are *vitrine.BadInput.
func Find(names []string) ([]Interface, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list the interfaces: %w", err)
	}
	every := slices.Equal(names, []string{Any})
	if every {
		names = nil
		for _, at := range all {
			if at.Flags&net.FlagUp != 0 {
				names = append(names, at.Name)
			}
		}
	}
	if len(names) == 0 {
		return nil, &vitrine.BadInput{File: Any, Found: "no interface is up", Want: "set one up: ip link set NAME up"}
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a socket: %w", err)
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	var found []Interface
	var errs []error
	for i, name := range names {
		at, err := find(fd, name, all)
		if every && vitrine.IsBadInput(err) { // skips interfaces of other types
			continue
		}
		if err == nil && slices.Contains(names[:i], name) {
			err = &vitrine.BadInput{File: name, Found: "named twice", Want: "name each interface once"}
		}
		at.Optional = every
		errs, found = append(errs, err), append(found, at)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return found, nil
}

func find(fd int, name string, all []net.Interface) (Interface, error) {
	i := slices.IndexFunc(all, func(at net.Interface) bool { return at.Name == name })
	switch {
	case i < 0:
		var names []string
		for _, at := range all {
			names = append(names, at.Name)
		}
		return Interface{}, &vitrine.BadInput{File: name, Found: "no such interface", Want: "there are " + strings.Join(append(names, Any), ", ")}
	case all[i].Flags&net.FlagUp == 0:
		return Interface{}, &vitrine.BadInput{File: name, Found: "the interface is down", Want: "set it up: ip link set " + name + " up"}
	}
	at := Interface{Name: name, Index: all[i].Index, Loopback: all[i].Flags&net.FlagLoopback != 0}
	request, err := unix.NewIfreq(name)
	if err == nil {
		err = unix.IoctlIfreq(fd, unix.SIOCGIFHWADDR, request)
	}
	if err != nil {
		return Interface{}, fmt.Errorf("read the type of interface %s: %w", name, err)
	}
	switch kind := request.Uint16(); kind {
	case unix.ARPHRD_ETHER, unix.ARPHRD_LOOPBACK:
	case unix.ARPHRD_NONE, unix.ARPHRD_RAWIP: // such as tun
		at.Raw = true
	default:
		return Interface{}, &vitrine.BadInput{File: name, Found: fmt.Sprintf("an interface of type %d", kind), Want: "want one of Ethernet or IP"}
	}
	return at, nil
}

// Check returns an error if an interface that is not optional no longer exists, or if none is left.
func (t *Tap) Check() error {
	for {
		i := slices.IndexFunc(t.interfaces, t.isGone)
		switch {
		case i < 0:
			return nil
		case !t.interfaces[i].Optional || len(t.interfaces) == 1:
			return fmt.Errorf("interface %s no longer exists", t.interfaces[i].Name)
		}
		t.interfaces = slices.Delete(t.interfaces, i, i+1)
	}
}

func (t *Tap) isGone(at Interface) bool {
	request, err := unix.NewIfreq(at.Name)
	if err == nil {
		err = unix.IoctlIfreq(t.fd, unix.SIOCGIFINDEX, request)
	}
	return err != nil || int(request.Uint32()) != at.Index
}
