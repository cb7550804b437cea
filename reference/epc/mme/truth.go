package mme

import (
	"vitrine/internal/truth"
	"vitrine/wire/s1ap"
)

// happen gives the present message an event of its own: a new one, or the event that
// the message got before it was parked.
func (w *worker) happen() {
	if w.event = w.kept; w.event == 0 {
		w.event = w.mme.config.Messages.Begin()
	}
}

// renew begins an event for the present message, and assigns it to the UE.
func (w *worker) renew(u *ue) {
	w.event = w.mme.config.Messages.Begin()
	u.event = w.event
}

// logSent logs a message to an eNodeB, with the worker's event.
func (w *worker) logSent(e *enodeb, message []byte) {
	if log := w.mme.config.Messages; log != nil {
		line := w.line(message)
		line.Src, line.Dst = truth.AddrPort(e.Local()), truth.AddrPort(e.Remote())
		log.Write(line)
	}
}

// logReceived logs a message from an eNodeB, with the worker's event.
func (w *worker) logReceived(e *enodeb, message []byte) {
	if log := w.mme.config.Messages; log != nil {
		line := w.line(message)
		line.Src, line.Dst, line.Received = truth.AddrPort(e.Remote()), truth.AddrPort(e.Local()), true
		log.Write(line)
	}
}

func (w *worker) line(message []byte) truth.Line {
	line := truth.Line{Protocol: truth.S1AP, Event: w.event, Key: truth.Hash(message)}
	var m s1ap.Message
	if m.Parse(message) == nil {
		line.Name = m.Procedure.String()
	}
	return line
}
