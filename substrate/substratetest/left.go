package substratetest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"vitrine/internal/hosttest"
	"vitrine/internal/netns"
)

// Left lists the cgroups, network namespaces and machines on this host that have the run's label.
func Left(run string) ([]string, error) {
	var found []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.Contains(path, "/vitrine/"+run) {
			found = append(found, path)
		}
		return nil // other programs create and remove groups during the walk
	})
	if err != nil {
		return nil, err
	}
	names, err := netns.List("vt-" + run)
	if err != nil {
		return nil, err
	}
	found = append(found, names...)
	pids, err := Machines(run)
	for _, pid := range pids {
		found = append(found, fmt.Sprint("machine ", pid))
	}
	return found, err
}

// Machines returns the QEMU processes of the run.
func Machines(run string) ([]int, error) {
	// machine.Program cannot be used: package machine imports package process, whose tests import this one.
	return hosttest.Processes(func(arguments string) bool {
		return strings.HasPrefix(arguments, "qemu-system-") && strings.Contains(arguments, "\x00vt-"+run+"-")
	})
}
