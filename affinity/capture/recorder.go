package capture

import (
	"bufio"
	"fmt"
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
	if r.file, err = os.Create(r.Name); err != nil {
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
