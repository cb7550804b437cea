package gtpc

import "vitrine/director/datagram"

// Bare returns the first worker and a sender for it, for tests that do not Run the
// Server.
func (s *Server) Bare() (datagram.Handler, *datagram.Sender) {
	return s.workers[0], s.group.NewSender()
}
