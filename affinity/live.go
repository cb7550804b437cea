package affinity

import (
	"context"

	"vitrine/affinity/capture"
	"vitrine/affinity/correlate"
	"vitrine/affinity/message"
)

// ReadLive is like ReadCaptures, for what passes network interfaces until stop is done. heard is
// called once packets are captured.
func ReadLive(ctx, stop context.Context, live capture.LiveOptions, heard func(), read message.Options, divide correlate.Options) (*Captured, error) {
	return collect(divide, func(handle func(*message.Message) error) (*message.Summary, error) {
		return message.ReadLive(ctx, stop, live, read, heard, handle)
	})
}
