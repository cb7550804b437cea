package hosttest

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// WithArgument returns this host's processes, in any namespace, that have the argument.
func WithArgument(argument string) ([]int, error) {
	return Processes(func(arguments string) bool { return strings.Contains(arguments, "\x00"+argument+"\x00") })
}

// Processes returns this host's processes, in any namespace, whose arguments match. A zero byte
// follows each argument.
func Processes(match func(arguments string) bool) ([]int, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil || !match(string(b)) {
			continue // the process has ended, or does not match
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}
