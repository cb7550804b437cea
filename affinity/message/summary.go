package message

import (
	"context"
	"time"
)

// Options configure Read. The zero value has the defaults.
type Options struct {
	// MaxMemory bounds the bytes of all tables together. Zero means 512 MiB.
	MaxMemory int
	// Name returns what to call a function, by its IP address, its address:port, or by
	// a name that the default gives it. It returns "" for the default. Nil is the same.
	Name func(text string) string
	// Progress receives the bytes that were read, from time to time. Nil means nobody.
	Progress func(bytes uint64)
	// Repeated is the longest time between a request and its retransmission, and
	// between a request and its answer. Zero means 64 s, which is twice SIP's.
	Repeated time.Duration
}

// Read reads captures as one, merged by time, and gives each message to handle. It
// returns a Summary of what was read even if it also returns an error.
//
// An error of handle ends the reading and is returned. A file that is not a capture is
// a *vitrine.BadInput. A file that cannot be read to its end is a *capture.Damage:
// everything before the damage was handled.
func Read(ctx context.Context, captures []string, o Options, handle func(*Message) error) (*Summary, error) {
	return nil, nil
}

// A Summary says what captures contained, and what of it was not understood.
type Summary struct {
	Begin, End int64 // ns since 1970: first and last packet
	Messages   uint64
}
