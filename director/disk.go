package director

import (
	"bytes"
	"errors"
	"io/fs"
	"time"
)

// A replacer replaces a file, as durable.Replace does.
type replacer func(path string, data []byte, mode fs.FileMode) error

// diskPatience bounds how long a write of the state file delays publications, gates and the control
// interface.
const diskPatience = time.Second

var errLate = errors.New("the disk has not finished a write within " + diskPatience.String())

// A disk replaces one file. A disk may stall, so a write that takes too long goes on without its caller. No
// other write begins before that one has ended: the file never goes back to older content. The caller
// serializes the calls.
type disk struct {
	replace replacer
	late    chan error // result of the write that goes on, which it holds until it is read; nil: none does
	data    []byte     // of that write
}

// write replaces the file. If it returns errLate, the file may get the data later. Then a call with the same
// data returns nil as soon as the file has them.
func (k *disk) write(path string, data []byte, mode fs.FileMode) error {
	if k.late != nil {
		select {
		case err := <-k.late:
			k.late = nil
			if err == nil && bytes.Equal(k.data, data) {
				return nil
			}
		default:
			return errLate
		}
	}
	done, replace := make(chan error, 1), k.replace
	go func() { done <- replace(path, data, mode) }()
	select {
	case err := <-done:
		return err
	case <-time.After(diskPatience):
		k.late, k.data = done, data
		return errLate
	}
}

// wait waits until no write goes on. The next call of write reads the result.
func (k *disk) wait() {
	if k.late != nil {
		k.late <- <-k.late
	}
}
