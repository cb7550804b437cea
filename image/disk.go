package image

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// onDisk returns how much of the disk a file uses, in bytes.
func onDisk(file string) (int64, error) {
	var st unix.Stat_t
	if err := unix.Stat(file, &st); err != nil {
		return 0, fmt.Errorf("the size of %s: %w", file, err)
	}
	return st.Blocks * 512, nil // stat(2): always units of 512, whatever the file system's block size
}
