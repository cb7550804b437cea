package image

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// onDisk is how much of the disk a file takes, in bytes.
func onDisk(file string) (int64, error) {
	var st unix.Stat_t
	if err := unix.Stat(file, &st); err != nil {
		return 0, fmt.Errorf("the size of %s: %w", file, err)
	}
	return st.Blocks * 512, nil // stat(2): always 512, whatever the file system's blocks are
}
