package capture

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"vitrine/internal/tap"
)

// A Recorder writes the frames of a Live into a pcapng file. Nil writes nothing.
type Recorder struct {
	Name string // of the file

	file *os.File
	out  *pcapgo.NgWriter
}

// begin creates the file, once the capture has begun.
func (r *Recorder) begin(names []string, links []LinkType) (err error) {
	if r == nil {
		return nil
	}
	if r.file, err = createPrivate(r.Name); err != nil {
		return err
	}
	buffered := bufio.NewWriterSize(r.file, readAhead) // NewNgWriterInterface uses a bufio.Writer directly
	for i, name := range names {
		at := pcapgo.NgInterface{Name: name, LinkType: layers.LinkType(links[i])}
		if i > 0 {
			_, err = r.out.AddInterface(at)
		} else {
			r.out, err = pcapgo.NewNgWriterInterface(buffered, at, pcapgo.NgWriterOptions{SectionInfo: pcapgo.NgSectionInfo{Application: "vitrine"}})
		}
		if err != nil {
			_ = r.file.Close()
			return r.failed(err)
		}
	}
	return nil
}

// createPrivate creates a file that only its user may read, because it has all that users sent. It removes
// an old file, which others may own or have open. It opens a pipe as it is.
func createPrivate(name string) (*os.File, error) {
	switch old, err := os.Lstat(name); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case old.Mode().IsRegular():
		if err := os.Remove(name); err != nil {
			return nil, err
		}
	default:
		return openPipe(name)
	}
	return os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

// openPipe opens a pipe or a device, perhaps behind a symbolic link such as /dev/stdout.
func openPipe(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.Mode().IsRegular() {
		err = fmt.Errorf("%s is a symbolic link to a file: name the file itself", name)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// add writes a frame.
func (r *Recorder) add(f *tap.Frame) error {
	if r == nil {
		return nil
	}
	return r.failed(r.out.WritePacket(gopacket.CaptureInfo{Timestamp: time.Unix(0, f.At), CaptureLength: len(f.Bytes), Length: f.Length,
		InterfaceIndex: f.Interface}, f.Bytes))
}

// end completes the file.
func (r *Recorder) end() error {
	if r == nil {
		return nil
	}
	err := r.out.Flush()
	if closing := r.file.Close(); err == nil {
		err = closing
	}
	return r.failed(err)
}

func (r *Recorder) failed(err error) error {
	if err != nil {
		err = fmt.Errorf("write %s: %w", r.Name, err)
	}
	return err
}
