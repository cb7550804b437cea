package http2

// maxStreams bounds the streams of a direction that the decoder remembers.
// Servers allow 100 to 256 streams at once (SETTINGS_MAX_CONCURRENT_STREAMS).
// Beyond the bound, the decoder forgets the oldest streams.
const maxStreams = 1 << 10

// A stream is the state of a message that has begun but not ended.
type stream struct {
	id      uint32 // zero if the slot is free
	gap     uint64 // the number of gaps at its head
	isWhole bool   // nothing of the message is missing, except in later gaps
}

// streams are the open streams of one direction. The stream number selects the
// slot. Numbers increase, so a new stream replaces an older one in its slot.
type streams struct {
	places []stream // empty, or a power of two
}

// place returns the slot of a stream. Even numbers, of promised streams, count
// down from the last slot, so that streams 2 and 3 do not share one.
func (s *streams) place(id uint32) *stream {
	i := id >> 1
	if id%2 == 0 {
		i = ^i
	}
	return &s.places[int(i)&(len(s.places)-1)]
}

// find returns a stream, nil for none.
func (s *streams) find(id uint32) *stream {
	if len(s.places) == 0 {
		return nil
	}
	if at := s.place(id); at.id == id {
		return at
	}
	return nil
}

// open returns the stream, which may be new. forgot reports whether another
// stream was forgotten to make room.
func (s *streams) open(id uint32) (of *stream, forgot bool) {
	for len(s.places) == 0 || !s.fits(id) && len(s.places) < maxStreams {
		old := s.places
		s.places = make([]stream, max(16, 2*len(old)))
		for _, of := range old {
			if of.id != 0 {
				*s.place(of.id) = of
			}
		}
	}
	of = s.place(id)
	forgot = !s.fits(id)
	if of.id != id {
		*of = stream{id: id}
	}
	return of, forgot
}

func (s *streams) fits(id uint32) bool {
	at := s.place(id)
	return at.id == 0 || at.id == id
}

// close removes a stream.
func (s *streams) close(id uint32) {
	if of := s.find(id); of != nil {
		*of = stream{}
	}
}

// cut marks a stream as incomplete.
func (s *streams) cut(id uint32) {
	if of := s.find(id); of != nil {
		of.isWhole = false
	}
}
