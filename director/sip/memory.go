package sip

import "vitrine/director/table"

// Memories are the steerings of the UDP workers, in their order, and then that
// of TCP: what a restart hands over. They may be touched before Run and after.
func (s *Server) Memories() []*table.Steering {
	all := make([]*table.Steering, len(s.proxies))
	for i, p := range s.proxies {
		all[i] = p.steering
	}
	return all
}
