package vitrine

import (
	"errors"
	"fmt"
)

// Unsupported is the error for something that this host cannot do. Commands exit
// with status 3 on it, and tests skip.
type Unsupported struct {
	What    string // "CPU quotas", "docker"
	Missing string // what is missing: a privilege, a kernel option, a program, a device
	Do      string // what the user can do about it; may be empty
}

func (e *Unsupported) Error() string {
	s := fmt.Sprintf("%s: not possible on this host: %s", e.What, e.Missing)
	if e.Do != "" {
		s += "; " + e.Do
	}
	return s
}

// IsUnsupported reports whether any error in the chain is an Unsupported.
func IsUnsupported(err error) bool {
	var u *Unsupported
	return errors.As(err, &u)
}

// BadInput is the error for input that the user must correct. Commands exit with
// status 2 on it.
type BadInput struct {
	File   string // as the user named it
	Line   int    // from 1; 0: the whole file
	Column int    // from 1
	Found  string // what is there
	Want   string // what is allowed, or what to do
}

func (e *BadInput) Error() string {
	at := e.File
	if e.Line > 0 {
		at = fmt.Sprintf("%s:%d:%d", e.File, e.Line, e.Column)
	}
	if e.Want == "" {
		return at + ": " + e.Found
	}
	return at + ": " + e.Found + ": " + e.Want
}

// IsBadInput reports whether any error in the chain is a BadInput.
func IsBadInput(err error) bool {
	var b *BadInput
	return errors.As(err, &b)
}
