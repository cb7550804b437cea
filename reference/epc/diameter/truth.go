package diameter

import (
	"github.com/fiorix/go-diameter/v4/diam"

	"vitrine/internal/truth"
)

// logSent logs a sent message with an event of this node.
func logSent(log *truth.Log, conn diam.Conn, m *diam.Message, of truth.Event) {
	logBegun(log, conn, m, of, "")
}

// logBegun is like logSent, for the message that begins a network event of a type.
func logBegun(log *truth.Log, conn diam.Conn, m *diam.Message, of truth.Event, kind string) {
	if log != nil {
		line := line(m, of)
		line.Type = kind
		line.Src, line.Dst = truth.AddrPort(conn.LocalAddr()), truth.AddrPort(conn.RemoteAddr())
		log.Write(line)
	}
}

// logReceived logs a received message with an event of this node.
func logReceived(log *truth.Log, conn diam.Conn, m *diam.Message, of truth.Event) {
	if log != nil {
		line := line(m, of)
		line.Src, line.Dst, line.Received = truth.AddrPort(conn.RemoteAddr()), truth.AddrPort(conn.LocalAddr()), true
		log.Write(line)
	}
}

func line(m *diam.Message, of truth.Event) truth.Line {
	request := m.Header.CommandFlags&diam.RequestFlag != 0
	name := "answer"
	if command, err := m.Dictionary().FindCommand(m.Header.ApplicationID, m.Header.CommandCode); err == nil {
		name = command.Short + "A"
		if request {
			name = command.Short + "R"
		}
	}
	return truth.Line{Protocol: truth.Diameter, Name: name, Event: of, Key: truth.Identifier(m.Header.HopByHopID, request)}
}
