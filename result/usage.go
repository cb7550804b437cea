package result

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/internal/durable"
)

// UsageHeader is the first line of usage/*.csv. Each sample but the first gives a row for each
// instance, one for the "host", and one for each CPU ("cpu0", of the HostComponent). The first
// sample only sets the counters. The columns:
//
//   - t_s: seconds since the window began, negative before it. Each rate is the mean since the
//     instance's previous row.
//   - cpu: CPUs in use. memory_bytes: the working set. rx_bytes_s, tx_bytes_s: over all
//     interfaces but lo.
//   - throttled: share of the time that the CPU quota throttled the instance, summed over CPUs,
//     so it can exceed 1.
//   - softirq, steal: CPUs lost to softirqs and to the hypervisor.
//   - missing: why cells are empty, "network: why; throttled: why"; in the host's row also how
//     many samples were missed before it.
const UsageHeader = "t_s,instance,component,cpu,memory_bytes,rx_bytes_s,tx_bytes_s,throttled,softirq,steal,missing"

// A Sample is one line of usage/*.csv: one instance at one time. The host has the instances "host",
// "cpu0", "cpu1", ... of the component "host". A nil field was not read, and Missing says why.
type Sample struct {
	Time      float64 // seconds since the window began; negative in the warm-up
	Instance  string
	Component string
	CPU       *float64 // CPUs
	Memory    *float64 // bytes
	RxBytes   *float64 // per second
	TxBytes   *float64 // per second
	Throttled *float64 // share of time, summed over CPUs: may exceed 1
	Softirq   *float64 // CPUs; host only
	Steal     *float64 // CPUs; host only
	Missing   string
}

// HostComponent is the component of samples of the machine itself.
const HostComponent = "host"

// usageName returns the file of one trial, relative to the run folder.
func usageName(key vitrine.Key) string {
	return filepath.Join(usageFolder, fmt.Sprintf("%d-%d.csv", key.Seq, key.Attempt))
}

// CreateUsage creates the file for the monitor's samples of one trial, and returns its path. It
// replaces the file of an unfinished trial, but never the file of a finished one. Once Close has
// returned without an error, the data is on disk.
func (r *Run) CreateUsage(key vitrine.Key) (*UsageWriter, string, error) {
	r.mu.Lock()
	err := r.checkDistinct(key)
	r.mu.Unlock()
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", r.dir, err)
	}
	path := filepath.Join(r.dir, usageName(key))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, "", advise("making a folder for usage", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return nil, "", advise("creating "+path, err)
	}
	return &UsageWriter{file: f, buffer: bufio.NewWriterSize(f, 1<<16)}, path, nil
}

// A UsageWriter writes the monitor's lines of one trial. It buffers them, because frequent writes
// would disturb the load.
type UsageWriter struct {
	file   *os.File
	buffer *bufio.Writer
}

// Write appends lines.
func (w *UsageWriter) Write(b []byte) (int, error) {
	n, err := w.buffer.Write(b)
	return n, advise("writing "+w.file.Name(), err)
}

// MoveOrigin moves the origin of t_s later by a time, in all lines. It is needed because the generator
// reports the start of the window only after the trial. Call it once, after the last Write.
func (w *UsageWriter) MoveOrigin(by time.Duration) error {
	if by == 0 {
		return nil
	}
	var moved bytes.Buffer
	err := w.buffer.Flush()
	if err == nil {
		err = subtractTime(io.NewSectionReader(w.file, 0, math.MaxInt64), &moved, by.Seconds())
	}
	if err == nil {
		_, err = w.file.WriteAt(moved.Bytes(), 0)
	}
	if err == nil {
		err = w.file.Truncate(int64(moved.Len()))
	}
	return advise("writing "+w.file.Name(), err)
}

// subtractTime copies a usage file and subtracts seconds from t_s, the first column.
func subtractTime(from io.Reader, to io.Writer, seconds float64) error {
	in, out := csv.NewReader(from), csv.NewWriter(to)
	in.ReuseRecord = true
	for header := true; ; header = false {
		row, err := in.Read()
		if errors.Is(err, io.EOF) {
			out.Flush()
			return out.Error()
		}
		if err != nil {
			return err
		}
		if !header {
			t, err := strconv.ParseFloat(row[0], 64)
			if err != nil {
				return err
			}
			row[0] = strconv.FormatFloat(t-seconds, 'f', 4, 64) // as many decimals as the monitor writes
		}
		if err := out.Write(row); err != nil {
			return err
		}
	}
}

// Close flushes the lines to disk, with the names of the file and of its folder.
func (w *UsageWriter) Close() error {
	err := w.buffer.Flush()
	if err == nil {
		err = w.file.Sync()
	}
	if err = errors.Join(err, w.file.Close()); err == nil {
		folder := filepath.Dir(w.file.Name())
		err = errors.Join(durable.Sync(folder), durable.Sync(filepath.Dir(folder)))
	}
	return advise("writing "+w.file.Name(), err)
}

// ReadUsage calls each for every sample of a usage file, in order. It finds columns by name and
// ignores unknown ones. It ignores a last line without a line feed, because that line is
// incomplete. Errors name the line.
func ReadUsage(r io.Reader, each func(Sample) error) error {
	source := &endReader{from: r}
	rows := csv.NewReader(source)
	rows.ReuseRecord = true
	header, err := rows.Read()
	if errors.Is(err, io.EOF) {
		return nil // the file was created, but has no samples
	}
	if err != nil {
		return err
	}
	columns, err := usageColumns(header)
	if err != nil {
		return err
	}
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			if _, next := rows.Read(); errors.Is(next, io.EOF) {
				return nil // an incomplete last line
			}
			return err
		}
		if rows.InputOffset() == source.n && source.last != '\n' {
			return nil // an incomplete last line, perhaps cut within its last cell
		}
		line, _ := rows.FieldPos(0)
		s, err := columns.sample(row)
		if err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
		if err := each(s); err != nil {
			return err
		}
	}
}

// An endReader records the number of bytes read, and the last byte.
type endReader struct {
	from io.Reader
	n    int64
	last byte
}

func (r *endReader) Read(b []byte) (int, error) {
	n, err := r.from.Read(b)
	if n > 0 {
		r.n, r.last = r.n+int64(n), b[n-1]
	}
	return n, err
}

// usageIndex is the position of each column in a usage file; -1: absent.
type usageIndex struct {
	time, instance, component, missing int
	numbers                            [7]int // cpu ... steal
}

func usageColumns(header []string) (usageIndex, error) {
	at := func(name string) int { return slices.Index(header, name) }
	x := usageIndex{time: at("t_s"), instance: at("instance"), component: at("component"), missing: at("missing")}
	for i, name := range []string{"cpu", "memory_bytes", "rx_bytes_s", "tx_bytes_s", "throttled", "softirq", "steal"} {
		x.numbers[i] = at(name)
	}
	if x.time < 0 || x.instance < 0 || x.component < 0 {
		return x, fmt.Errorf("line 1: not the header of a usage file: want %s", UsageHeader)
	}
	return x, nil
}

func (x usageIndex) sample(row []string) (Sample, error) {
	t, err := strconv.ParseFloat(row[x.time], 64)
	if err != nil || !finite(t) {
		return Sample{}, fmt.Errorf("t_s is %q, not seconds", row[x.time])
	}
	s := Sample{Time: t, Instance: row[x.instance], Component: row[x.component]}
	if x.missing >= 0 {
		s.Missing = row[x.missing]
	}
	values := new([7]float64) // one allocation for all numbers of a sample
	fields := [7]**float64{&s.CPU, &s.Memory, &s.RxBytes, &s.TxBytes, &s.Throttled, &s.Softirq, &s.Steal}
	for i, column := range x.numbers {
		if column < 0 || row[column] == "" {
			continue
		}
		v, err := strconv.ParseFloat(row[column], 64)
		if err != nil || !finite(v) {
			return Sample{}, fmt.Errorf("%q is not a number", row[column])
		}
		values[i] = v
		*fields[i] = &values[i]
	}
	return s, nil
}
