package embedded

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Limits on the age of the measured free space: time, and bytes written.
const (
	diskEvery = 100 * time.Millisecond
	diskBytes = 1 << 20
)

// disk watches free space. The reserve is for writes that were answered but still have to
// move from the log into tables. Only the committer calls check and wrote.
type disk struct {
	full    atomic.Bool
	low     bool // less than half of the reserve is free; only for the committer
	checked time.Time
	written int // bytes since checked
	unknown bool
}

func (d *disk) wrote(n int) { d.written += n }

func (d *disk) check(e *Engine) {
	now := time.Now() // measures an interval; config.Now is the clock that expires records
	if d.written < diskBytes && now.Sub(d.checked) < diskEvery {
		return
	}
	d.checked, d.written = now, 0
	usage, err := e.config.FS.GetDiskUsage(e.config.Dir)
	if err != nil {
		if !d.unknown && !errors.Is(err, vfs.ErrUnsupported) {
			d.unknown = true
			e.log.Warn("free disk space is unknown: the reserve is not kept", "dir", e.config.Dir, "error", err)
		}
		return
	}
	d.unknown = false
	d.low = usage.AvailBytes < e.config.ReserveBytes/2
	full := usage.AvailBytes < e.config.ReserveBytes
	if d.full.Swap(full) == full {
		return
	}
	if full {
		e.log.Error("the disk is full: puts are refused, reads and deletes go on; free space",
			"dir", e.config.Dir, "available", usage.AvailBytes, "reserve", e.config.ReserveBytes)
	} else {
		e.log.Info("the disk has room again", "dir", e.config.Dir, "available", usage.AvailBytes)
	}
}
