package testbed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"vitrine/substrate"
)

const (
	logMost  = 64 << 20    // bytes that a log may have on the disk, by default
	logEvery = time.Second // between two checks of the logs
)

// A boundedLog is a log that loses its middle when it exceeds its bound. Functions and QEMU write
// to the file themselves, at full speed and at their own offsets, so a log cannot be truncated or
// moved while they run. Instead, the kernel frees the middle of the file, which then reads as
// zeros. When nothing writes to the file any more, the file is shortened. Between two checks, a
// log can exceed its bound by the bytes written in that time.
type boundedLog struct {
	path  string
	most  int64
	until int64 // the bytes from keep() to here are freed; 0: none

	earlier int64 // dropped bytes according to a note in the freed part, minus the note's length; see noted

	fallocate func(fd int, mode uint32, off, size int64) error // nil: unix.Fallocate
}

// droppedNote replaces the dropped bytes in a log. It has the number of these bytes, and the
// bound.
const droppedNote = "\n[vitrine: %d bytes are dropped here, because this log has more than %d]\n"

// noted looks for an earlier deployment's note at the start of the part to free, because
// all deployments of a sizing append to the same log. It returns the number of bytes that
// the note reports, minus the note's own length; 0: there is no note.
func (l *boundedLog) noted(f *os.File) int64 {
	text := make([]byte, 160)
	n, _ := f.ReadAt(text, l.keep()) // a short read has no note
	text, _, found := bytes.Cut(text[:n], []byte("]\n"))
	var dropped, most int64
	note := string(text) + "]\n"
	if _, err := fmt.Sscanf(note, droppedNote, &dropped, &most); err != nil || !found {
		return 0
	}
	return dropped - int64(len(note))
}

// keep is the number of bytes to keep at the start of a log and, after a trim, at its end.
// Each is a quarter of the bound, so a log is trimmed at most once per half a bound of new
// output.
func (l *boundedLog) keep() int64 { return l.most / 4 }

// trim frees the middle of the log if it is over the bound. If the file system cannot free a part of
// a file, the log no longer has a bound: a full log is better than a campaign that ends.
func (l *boundedLog) trim() error {
	f, size, err := l.open()
	if f == nil {
		return err
	}
	defer f.Close() // nothing was written
	if size < l.until {
		l.until = 0 // the log was begun anew
	}
	from := max(l.until, l.keep())
	if to := size - l.keep(); l.keep()+size-from > l.most && to > from {
		if l.until == 0 {
			l.earlier = l.noted(f)
		}
		fallocate := l.fallocate
		if fallocate == nil {
			fallocate = unix.Fallocate
		}
		err := fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, from, to-from)
		if errors.Is(err, unix.EOPNOTSUPP) {
			l.most, l.until = math.MaxInt64, 0
			return nil
		}
		if err != nil {
			return fmt.Errorf("bound the log %s: free its middle: %w", l.path, err)
		}
		l.until = to
	}
	return nil
}

// open returns the file and its size. The file is nil if there is no regular file.
func (l *boundedLog) open() (*os.File, int64, error) {
	f, size, err := substrate.OpenRegular(l.path, os.O_RDWR)
	for _, none := range []error{fs.ErrNotExist, unix.ELOOP, unix.ENXIO, substrate.ErrIrregular} {
		if errors.Is(err, none) {
			return nil, 0, nil
		}
	}
	if err != nil {
		return nil, 0, fmt.Errorf("bound a log: %w", err)
	}
	return f, size, nil
}

// shorten replaces a log without its middle by a copy that has a note in place of the middle. No
// process may be writing to the log.
func (l *boundedLog) shorten() error {
	if err := l.trim(); err != nil || l.until == 0 {
		return err
	}
	f, size, err := l.open()
	if f == nil {
		return err
	}
	defer f.Close() // nothing was written
	note := fmt.Sprintf(droppedNote, l.until-l.keep()+l.earlier, l.most)
	next := l.path + ".short"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a run that was killed at this point
		return fmt.Errorf("shorten the log %s: %w", l.path, err)
	}
	out, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return fmt.Errorf("shorten the log %s: %w", l.path, err)
	}
	_, err = io.Copy(out, io.NewSectionReader(f, 0, l.keep()))
	if err == nil {
		_, err = out.WriteString(note)
	}
	if err == nil {
		_, err = io.Copy(out, io.NewSectionReader(f, l.until, size-l.until))
	}
	if err = errors.Join(err, out.Close()); err == nil {
		err = os.Rename(next, l.path)
	}
	if err != nil {
		return fmt.Errorf("shorten the log %s: %w", l.path, errors.Join(err, os.Remove(next)))
	}
	l.until, l.earlier = 0, 0
	return nil
}

// boundLogs trims the placement's logs until the caller calls end, which also shortens
// them. Nothing may run in the instances by then.
func (p *Placement) boundLogs() (end func() error) {
	most := p.site.config.LogLimit
	if most == 0 {
		most = logMost
	}
	var logs []*boundedLog
	for _, in := range p.Instances {
		for _, path := range append([]string{in.logFile()}, substrate.Logs(in.place)...) {
			logs = append(logs, &boundedLog{path: path, most: most})
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	trimmed := make(chan error, 1)
	go func() { trimmed <- trimLogs(ctx, logs) }()
	return func() error {
		cancel()
		err := <-trimmed
		for _, l := range logs {
			err = errors.Join(err, l.shorten())
		}
		return err
	}
}

// trimLogs trims the logs at intervals until ctx ends. After an error it no longer trims
// that log.
func trimLogs(ctx context.Context, logs []*boundedLog) (failed error) {
	tick := time.NewTicker(logEvery)
	defer tick.Stop()
	given := map[*boundedLog]bool{}
	for {
		select {
		case <-ctx.Done():
			return failed
		case <-tick.C:
		}
		for _, l := range logs {
			if given[l] {
				continue
			}
			if err := l.trim(); err != nil {
				given[l], failed = true, errors.Join(failed, err)
			}
		}
	}
}
