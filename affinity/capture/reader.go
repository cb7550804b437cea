package capture

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"time"
)

// Options configure a Reader. The zero value has the defaults.
type Options struct {
	// MaxMemory bounds the bytes of incomplete fragments. Zero means 64 MiB.
	MaxMemory int
	// FragmentTimeout is how long fragments wait for the rest of their datagram, in the
	// time of the capture. Zero means 30 s.
	FragmentTimeout time.Duration
	// Correct returns the corrected time of a frame, so that files of hosts with
	// different clocks merge in the true order. Times are in nanoseconds since 1970.
	// It is called once a frame, in the order of the file.
	Correct func(file int, at int64) int64
	// Incomplete receives the payload protocol identifier of each SCTP user message that is
	// dropped because a fragment is missing. Nil ignores them.
	Incomplete func(ppid uint32)
}

// A Reader merges capture files by time. It keeps one frame of each in memory.
type Reader struct {
	files   []*file // files that have a frame, as a heap by its time
	all     []*file
	started bool
	correct func(file int, at int64) int64
	walker  Walker
	errs    []error
}

// Open opens capture files. The caller closes the Reader. The error is a
// *vitrine.BadInput for a file that is not a capture. A file with a damaged header has no
// packets; Err returns its *Damage.
func Open(names []string, o Options) (*Reader, error) {
	if len(names) > math.MaxUint16 {
		return nil, fmt.Errorf("%d captures: at most %d can be merged", len(names), math.MaxUint16)
	}
	var files []*file
	for _, name := range names {
		f, err := openFile(name)
		if err != nil {
			for _, open := range files {
				_ = open.close()
			}
			return nil, err
		}
		files = append(files, f)
	}
	return newReader(files, o), nil
}

func newReader(files []*file, o Options) *Reader {
	r := &Reader{all: files, correct: o.Correct}
	r.walker.init(o)
	for i, f := range files {
		f.index = uint16(i)
	}
	return r
}

// Next returns the next packet, or nil after the last. The packet is valid until the next
// call. Packets of one file keep their order. Packets of different files are in order of
// time, or of the list of files if times are equal.
func (r *Reader) Next() *Packet {
	for {
		if p := r.walker.Next(); p != nil {
			return p
		}
		f := r.advance()
		if f == nil {
			r.walker.finish()
			return nil
		}
		r.walker.Walk(f.from, f.at, f.where, f.data)
	}
}

// advance returns the file with the earliest next frame, or nil.
func (r *Reader) advance() *file {
	if !r.started {
		r.started = true
		for _, f := range r.all {
			if r.load(f) {
				r.files = append(r.files, f)
			}
		}
		for i := len(r.files)/2 - 1; i >= 0; i-- {
			r.down(i)
		}
	} else if len(r.files) > 0 {
		if !r.load(r.files[0]) {
			last := len(r.files) - 1
			r.files[0] = r.files[last]
			r.files = r.files[:last]
		}
		r.down(0)
	}
	if len(r.files) == 0 {
		return nil
	}
	return r.files[0]
}

// load reads the next frame of a file and reports whether there is one. It keeps errors of
// the file for Err.
func (r *Reader) load(f *file) bool {
	err := f.next()
	if err == nil {
		if r.correct != nil {
			f.at = r.correct(int(f.index), f.at)
		}
		return true
	}
	if err != io.EOF { //nolint:errorlint // next returns io.EOF itself
		r.errs = append(r.errs, err)
	}
	return false
}

// down restores the heap below a file that may be later than its children.
func (r *Reader) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(r.files); child++ {
			if before(r.files[child], r.files[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		r.files[i], r.files[least] = r.files[least], r.files[i]
		i = least
	}
}

func before(a, b *file) bool {
	return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.index, b.index)) < 0
}

// Err returns the errors of the files, after Next returned nil: a *Damage for each file
// that could not be read to its end, joined.
func (r *Reader) Err() error { return errors.Join(r.errs...) }

// Counts returns the counts up to now. The caller must not change them.
func (r *Reader) Counts() *Counts { return &r.walker.counts }

// Close closes the files.
func (r *Reader) Close() error {
	var errs []error
	for _, f := range r.all {
		errs = append(errs, f.close())
	}
	return errors.Join(errs...)
}
