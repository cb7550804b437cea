package sriov

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"vitrine"
)

// defaultSysfs is where the kernel shows devices.
const defaultSysfs = "/sys"

// A function is a physical function: an interface whose device can have virtual
// functions. The kernel shows them in files
// (Documentation/PCI/pci-iov-howto.rst).
type function struct {
	name string // of the interface: "enp3s0"
	dir  string // of its device in sysfs
	most int    // number of virtual functions that it can have
}

// openFunction finds the device of an interface of the host. If the device
// cannot have virtual functions, the error is a *vitrine.Unsupported.
func openFunction(sysfs, name string) (*function, error) {
	f := &function{name: name, dir: filepath.Join(sysfs, "class/net", name, "device")}
	most, err := f.read("sriov_totalvfs")
	if errors.Is(err, fs.ErrNotExist) || err == nil && most == 0 {
		return nil, &vitrine.Unsupported{What: "virtual functions of " + name,
			Missing: "a device and a driver that have them, and a kernel with CONFIG_PCI_IOV: none in " + filepath.Join(f.dir, "sriov_totalvfs"),
			Do:      "take an interface that `vitrine doctor` lists, enable SR-IOV in the firmware's set-up, or use the fabric macvlan"}
	}
	f.most = most
	return f, err
}

// functions returns the interfaces of the host whose devices can have virtual
// functions.
func functions(sysfs string) (found []*function, err error) {
	paths, err := filepath.Glob(filepath.Join(sysfs, "class/net/*/device/sriov_totalvfs"))
	if err != nil {
		return nil, fmt.Errorf("looking for virtual functions: %w", err)
	}
	for _, path := range paths {
		f, err := openFunction(sysfs, filepath.Base(filepath.Dir(filepath.Dir(path))))
		if vitrine.IsUnsupported(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found = append(found, f)
	}
	return found, nil
}

// read returns the number in a file of the device.
func (f *function) read(name string) (int, error) {
	b, err := os.ReadFile(filepath.Join(f.dir, name))
	if err != nil {
		return 0, fmt.Errorf("reading the virtual functions of %s: %w", f.name, err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0, fmt.Errorf("reading the virtual functions of %s: %s: %w", f.name, name, err)
	}
	return n, nil
}

// count returns the current number of virtual functions.
func (f *function) count() (int, error) { return f.read("sriov_numvfs") }

// set makes count virtual functions, or removes all with 0.
func (f *function) set(count int) error {
	err := os.WriteFile(filepath.Join(f.dir, "sriov_numvfs"), []byte(strconv.Itoa(count)), 0)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) {
		return &vitrine.Unsupported{What: "making virtual functions of " + f.name, Missing: "the privilege to write in sysfs: " + err.Error(),
			Do: "run as root, or make them first (echo 4 > " + filepath.Join(f.dir, "sriov_numvfs") + ")"}
	}
	if err != nil {
		return fmt.Errorf("making %d virtual functions of %s: %w", count, f.name, err)
	}
	return nil
}

// virtual returns the name of a virtual function's interface. It is empty when
// the interface is not on the host: it is in an instance, or no driver makes
// one.
func (f *function) virtual(number int) (string, error) {
	entries, err := os.ReadDir(filepath.Join(f.dir, fmt.Sprintf("virtfn%d", number), "net"))
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("looking for the virtual function %d of %s: %w", number, f.name, err)
	}
	return entries[0].Name(), nil
}

// awaitLimit is how long the driver may take to make interfaces.
const awaitLimit = 10 * time.Second

// await waits for the interfaces of virtual functions that were just made.
func (f *function) await(count int) error {
	deadline := time.Now().Add(awaitLimit)
	for number := 0; number < count; {
		name, err := f.virtual(number)
		switch {
		case err != nil:
			return err
		case name != "":
			number++
		case time.Now().After(deadline):
			return &vitrine.Unsupported{What: "virtual functions of " + f.name,
				Missing: fmt.Sprintf("a driver for them: number %d has had no interface for %v", number, awaitLimit), Do: "load the driver of the card's virtual functions"}
		default:
			time.Sleep(10 * time.Millisecond)
		}
	}
	return nil
}
