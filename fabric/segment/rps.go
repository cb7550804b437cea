package segment

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"vitrine/internal/netns"
)

// rps returns the CPUs that do the receive work of a host interface, by queue:
// "rx-0" (receive packet steering; Linux, Documentation/networking/scaling.rst,
// "RPS"). It ignores errors, because a setting that cannot be read cannot have
// been made.
func (l *Lender) rps(name string) map[string]string {
	cpus := make(map[string]string)
	_ = l.queues(name, func(file string) error {
		is, err := os.ReadFile(file)
		cpus[filepath.Base(filepath.Dir(file))] = strings.TrimSpace(string(is))
		return err
	})
	return cpus
}

// setRPS writes back the CPUs that rps read, where they have changed.
func (l *Lender) setRPS(name string, cpus map[string]string) error {
	if len(cpus) == 0 {
		return nil
	}
	return l.queues(name, func(file string) error {
		was, known := cpus[filepath.Base(filepath.Dir(file))]
		if is, err := os.ReadFile(file); err != nil || !known || strings.TrimSpace(string(is)) == was {
			return err
		}
		return os.WriteFile(file, []byte(was), 0)
	})
}

// queues calls do with the file rps_cpus of each receive queue, up to the first
// error.
func (l *Lender) queues(name string, do func(file string) error) error {
	return netns.Do(fmt.Sprintf("/proc/self/fd/%d", l.here.Fd()), func() error {
		return netns.Sysfs(func(sysfs string) error {
			files, err := filepath.Glob(filepath.Join(sysfs, "class/net", name, "queues/rx-*/rps_cpus"))
			for _, file := range files {
				if err == nil {
					err = do(file)
				}
			}
			return err
		})
	})
}
