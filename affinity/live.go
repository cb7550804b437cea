package affinity

import (
	"context"

	"vitrine/affinity/capture"
	"vitrine/affinity/correlate"
	"vitrine/affinity/message"
	"vitrine/affinity/pseudonym"
)

// ReadLive is like ReadCaptures, but captures on network interfaces until stop is done. It
// calls heard when the capture has started.
func ReadLive(ctx, stop context.Context, live capture.LiveOptions, heard func(), read message.Options, divide correlate.Options, key *pseudonym.Key) (*Captured, error) {
	return collect(read, divide, key, func(read message.Options, handle func(*message.Message) error) (*message.Summary, error) {
		return message.ReadLive(ctx, stop, live, read, heard, handle)
	})
}
