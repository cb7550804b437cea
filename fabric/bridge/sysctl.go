package bridge

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// quiet keeps the calling thread's namespace to what is asked of it: no IPv6
// on its interfaces, whose discovery is traffic that nobody offered, and no
// packet filter between instances.
func quiet() error {
	for _, key := range []string{"net/ipv6/conf/all/disable_ipv6", "net/ipv6/conf/default/disable_ipv6"} {
		if err := sysctl(key, "1"); err != nil {
			return err
		}
	}
	return sysctl("net/bridge/bridge-nf-call-iptables", "0")
}

// sysctl sets a kernel parameter of the calling thread's namespace. One that the
// kernel does not have need not be set; where they cannot be written, as in some
// containers, things work all the same.
func sysctl(key, value string) error {
	err := os.WriteFile(filepath.Join("/proc/sys", key), []byte(value), 0)
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EROFS) {
		return nil
	}
	return fmt.Errorf("setting %s: %w", key, err)
}
