package capture

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"vitrine"
)

const (
	readAhead = 256 << 10 // bytes of a file
	maxWindow = 32 << 20  // bytes that zstd may refer back to; zstd -19 needs 8 MiB
)

// A file is a capture file. It keeps one frame in memory.
type file struct {
	name   string
	index  uint16
	source io.Closer // nil if the caller closes it
	zstd   *zstd.Decoder
	guard  guard
	frames interface {
		ZeroCopyReadPacketData() ([]byte, gopacket.CaptureInfo, error)
	}
	link    LinkType // of all frames of a pcap file
	damaged *Damage  // of the header: the file has no frames

	// The current frame. data is valid until the next one.
	data  []byte
	at    int64 // nanoseconds since 1970, corrected
	read  int64 // the same, uncorrected
	from  LinkType
	where Where
}

// openFile opens a capture file. If its header is damaged, next returns the *Damage, so that
// other files can be read.
func openFile(name string) (*file, error) {
	source, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	f, err := newFile(name, source)
	if damage, ok := errors.AsType[*Damage](err); ok {
		f, err = &file{name: name, damaged: damage}, nil
	}
	if err != nil {
		_ = source.Close()
		return nil, err
	}
	f.source = source
	return f, nil
}

// newFile reads the header of a capture from in.
func newFile(name string, in io.Reader) (*file, error) {
	f := &file{name: name}
	if err := f.decompress(bufio.NewReaderSize(in, readAhead)); err != nil {
		return nil, err
	}
	head, err := f.guard.in.Peek(4)
	switch {
	case err == io.EOF && len(head) == 0: //nolint:errorlint // bufio returns io.EOF itself
		return nil, &vitrine.BadInput{File: name, Found: "the file is empty", Want: "a pcap or pcapng capture"}
	case err != nil && err != io.EOF: //nolint:errorlint // as above
		return nil, &Damage{File: name, What: err}
	}
	switch {
	case isPcapng(head):
		f.guard.next = f.guard.pcapng
		f.frames, err = pcapgo.NewNgReader(&f.guard, pcapgo.NgReaderOptions{WantMixedLinkType: true})
	case isPcap(head):
		f.guard.next = f.guard.pcap
		var r *pcapgo.Reader
		if r, err = pcapgo.NewReader(&f.guard); err == nil {
			f.link, f.frames = LinkType(r.LinkType()), r
		}
	default:
		return nil, &vitrine.BadInput{File: name, Found: "not a capture", Want: "a pcap or pcapng file, which may be compressed by gzip or zstd"}
	}
	if err != nil {
		return nil, f.damage(err)
	}
	return f, nil
}

// Looks reports whether a file with these first octets looks like a capture, or like a file
// compressed by gzip or zstd, which may contain one.
func Looks(head []byte) bool {
	return isPcap(head) || isPcapng(head) || isGzip(head) || isZstd(head)
}

// isPcap reports whether head begins a pcap file (draft-ietf-opsawg-pcap), in either byte
// order, with times in microseconds or nanoseconds.
func isPcap(head []byte) bool {
	switch magic(head) {
	case 0xa1b2c3d4, 0xd4c3b2a1, 0xa1b23c4d, 0x4d3cb2a1:
		return true
	}
	return false
}

func isPcapng(head []byte) bool { return magic(head) == sectionHeader } // draft-ietf-opsawg-pcapng

func isGzip(head []byte) bool { return len(head) >= 2 && head[0] == 0x1f && head[1] == 0x8b } // RFC 1952

func isZstd(head []byte) bool { return magic(head) == 0xfd2fb528 } // RFC 8878

// magic returns the first word of a file, or 0 if the file is shorter.
func magic(head []byte) uint32 {
	if len(head) < 4 {
		return 0
	}
	return binary.LittleEndian.Uint32(head)
}

// decompress makes the guard read in, decompressed if necessary.
func (f *file) decompress(in *bufio.Reader) error {
	head, _ := in.Peek(4)
	var err error
	var plain io.Reader
	switch {
	case isGzip(head):
		plain, err = gzip.NewReader(in)
	case isZstd(head):
		f.zstd, err = zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		plain = f.zstd
	default:
		f.guard.in = in
		return nil
	}
	if err != nil {
		return &Damage{File: f.name, What: err}
	}
	f.guard.in = bufio.NewReaderSize(plain, readAhead)
	return nil
}

// next reads the next frame. The error is io.EOF at the end of the file.
func (f *file) next() error {
	if f.damaged != nil {
		return f.damaged
	}
	data, info, err := f.frames.ZeroCopyReadPacketData()
	if err != nil {
		f.data = nil
		return f.damage(err)
	}
	f.data, f.from, f.where = data, f.link, Where{File: f.index}
	if f.guard.links != nil {
		f.from = f.guard.links[info.InterfaceIndex]
		f.where.Interface = uint16(f.guard.base + info.InterfaceIndex)
	}
	if !info.Timestamp.IsZero() { // simple packets have no time, so they keep the time of the previous frame
		f.read = nanoseconds(info.Timestamp)
	}
	f.at = f.read
	return nil
}

// damage returns io.EOF at the end of the file, and otherwise a *Damage.
func (f *file) damage(err error) error {
	if f.guard.err != nil {
		err = f.guard.err // pcapgo may have wrapped or replaced it
	}
	if err == io.EOF { //nolint:errorlint // the guard returns io.EOF itself
		return err
	}
	return &Damage{File: f.name, Offset: f.guard.start, What: err}
}

// nanoseconds returns a time in nanoseconds since 1970. Times outside the years 1678 to
// 2262 do not fit and are clamped.
func nanoseconds(t time.Time) int64 {
	const last = (1<<63-1)/1_000_000_000 - 1 // seconds
	switch seconds := t.Unix(); {
	case seconds > last:
		return last * 1_000_000_000
	case seconds < -last:
		return -last * 1_000_000_000
	}
	return t.UnixNano()
}

// close closes the file.
func (f *file) close() error {
	if f.zstd != nil {
		f.zstd.Close()
	}
	if f.source == nil {
		return nil
	}
	err := f.source.Close()
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}
