package unikernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"vitrine"
)

// Offsets of the fields of a bzImage header that this package uses (Linux,
// Documentation/x86/boot.rst, "The Real-Mode Kernel Header"), and the fields' sizes.
const (
	setupSects   = 0x1f1 // 1 byte: sectors of real-mode code after the first
	sysSize      = 0x1f4 // 4: the rest of the kernel, in paragraphs of 16 bytes
	magic        = 0x202 // 4: "HdrS"
	version      = 0x206 // 2: protocol version
	loadFlags    = 0x211 // 1: bit 0: the protected-mode code is loaded at loadAddress
	ramdiskImage = 0x218 // 4: address of the files in memory
	ramdiskSize  = 0x21c // 4: bytes
	prefAddress  = 0x258 // 8: address to which the kernel prefers to unpack itself
	initSize     = 0x260 // 4: bytes of memory from prefAddress that the kernel needs until it runs
	headerEnd    = 0x264

	loadAddress = 0x100000 // of everything after the real-mode code
	page        = 0x1000
	sector      = 512
)

// A header is the header of a kernel's file.
type header struct {
	raw      [headerEnd]byte
	setup    int64 // bytes before the part that is loaded at loadAddress
	end      int64 // of the kernel in the file
	ramdisk  int64 // offset of the files in the file; 0: no files
	ramBytes int64
	free     int64 // first address past the memory that the kernel needs to unpack itself
}

// readHeader reads the header of a bzImage. Any other file, or one with a protocol before
// 2.12, is a *vitrine.BadInput.
func readHeader(name string, r io.ReaderAt) (header, error) {
	var h header
	bad := func(found string) (header, error) {
		return header{}, &vitrine.BadInput{File: name, Found: found, Want: "a Linux kernel, a bzImage"}
	}
	if _, err := r.ReadAt(h.raw[:], 0); err != nil {
		if errors.Is(err, io.EOF) {
			return bad("not a kernel: it is too short")
		}
		return header{}, err
	}
	u32 := func(at int) int64 { return int64(binary.LittleEndian.Uint32(h.raw[at:])) }
	if string(h.raw[magic:magic+4]) != "HdrS" || h.raw[loadFlags]&1 == 0 {
		return bad("not a bzImage: it has no bzImage header")
	}
	if v := binary.LittleEndian.Uint16(h.raw[version:]); v < 0x20c {
		return bad(fmt.Sprintf("a bzImage of boot protocol %d.%02d", v>>8, v&0xff))
	}
	sectors := int64(h.raw[setupSects])
	if sectors == 0 {
		sectors = 4
	}
	h.setup = (sectors + 1) * sector
	h.end = h.setup + u32(sysSize)*16
	pref := binary.LittleEndian.Uint64(h.raw[prefAddress:])
	if pref > 1<<32 {
		return bad("a bzImage with a load address beyond 4 GiB")
	}
	h.free = (max(int64(pref), loadAddress) + u32(initSize) + page - 1) &^ (page - 1)
	if at, n := u32(ramdiskImage), u32(ramdiskSize); n > 0 {
		h.ramdisk, h.ramBytes = at-loadAddress+h.setup, n
		if at < loadAddress || h.ramdisk < h.end {
			return bad("a bzImage whose files overlap the kernel")
		}
	}
	return h, nil
}

// join writes the kernel and the files into one bzImage. A hole between them gives the kernel room
// to unpack itself. Boot loaders load the whole file, and the header has the address of the files.
func join(kernel, to string, files func(io.Writer) error) error {
	from, err := os.Open(kernel)
	if err != nil {
		return err
	}
	defer from.Close()
	h, err := readHeader(kernel, from)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(h.join(f, from, files), f.Close())
}

func (h header) join(f *os.File, kernel io.Reader, files func(io.Writer) error) error {
	if _, err := io.Copy(f, kernel); err != nil {
		return err
	}
	begin := h.free - loadAddress + h.setup
	if _, err := f.Seek(begin, io.SeekStart); err != nil {
		return err
	}
	if err := files(f); err != nil {
		return err
	}
	end, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	if end-begin+h.free > 1<<31 {
		return &vitrine.BadInput{File: "the application", Found: fmt.Sprintf("%d MiB of files", (end-begin)>>20), Want: "less than 2 GiB, because all files are in memory"}
	}
	var where [8]byte
	binary.LittleEndian.PutUint32(where[:], uint32(h.free))
	binary.LittleEndian.PutUint32(where[4:], uint32(end-begin))
	_, err = f.WriteAt(where[:], ramdiskImage)
	return err
}

// Split writes the kernel and the files of an image into two files, for a machine whose firmware
// ignores the address in the header. All users may read the two files, as they may read an image.
// An image without files, such as a kernel alone, is a *vitrine.BadInput.
func Split(image, kernel, files string) error {
	from, err := os.Open(image)
	if err != nil {
		return err
	}
	defer from.Close()
	h, err := readHeader(image, from)
	if err != nil {
		return err
	}
	if h.ramBytes == 0 {
		return &vitrine.BadInput{File: image, Found: "a kernel without files", Want: "an image from vitrine image build"}
	}
	return errors.Join(
		extract(from, 0, h.end, kernel),
		extract(from, h.ramdisk, h.ramBytes, files))
}

func extract(from io.ReaderAt, begin, size int64, to string) error {
	f, err := create(to)
	if err != nil {
		return err
	}
	n, err := io.Copy(f, io.NewSectionReader(from, begin, size))
	if err == nil && n < size {
		err = io.ErrUnexpectedEOF
	}
	return errors.Join(err, f.Close())
}

// create makes a file that QEMU's user may read, because QEMU's start copies any other file into
// memory.
func create(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, err
	}
	if err := f.Chmod(0o644); err != nil { // undoes the umask
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// IsImage reports whether the file is an image of Pack.
func IsImage(file string) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	h, err := readHeader(file, f)
	return err == nil && h.ramBytes > 0
}
