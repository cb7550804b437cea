package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"vitrine"
	"vitrine/affinity"
	"vitrine/affinity/message"
	"vitrine/affinity/pseudonym"
	"vitrine/document"
)

// messages prints the messages in captures, and a summary.
func (a *app) messages(ctx context.Context, captures []string, f affinityFlags) error {
	o, err := f.reading()
	if err != nil {
		return err
	}
	for _, name := range captures {
		if info, err := os.Stat(name); err != nil {
			return &vitrine.BadInput{File: name, Found: "no file: " + err.Error(), Want: "name captures: pcap or pcapng files"}
		} else if info.IsDir() {
			return &vitrine.BadInput{File: name, Found: "a folder", Want: "name the captures in it"}
		}
	}
	if err := f.live.check(captures); err != nil {
		return err
	}
	key, err := f.key()
	if err != nil {
		return err
	}
	if key != nil {
		o.Hide = key.Function
	}
	o.Progress = a.readProgress()
	out := bufio.NewWriter(a.stdout)
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	summary, err := a.readMessages(ctx, captures, f, o, func(m *message.Message) error {
		if key != nil {
			key.Message(m)
		}
		if f.json {
			return e.Encode(m)
		}
		err := printMessage(out, m)
		if f.live.live() { // the user watches the output
			err = errors.Join(err, out.Flush())
		}
		return err
	})
	switch {
	case vitrine.IsBadInput(err), vitrine.IsUnsupported(err): // no packet was read
	case f.json:
		err = errors.Join(err, e.Encode(map[string]*message.Summary{"summary": summary}))
	default:
		fmt.Fprintln(out)
		err = errors.Join(err, summary.Text(out))
	}
	return errors.Join(err, out.Flush())
}

// readMessages reads the messages of captures or of a live capture.
func (a *app) readMessages(ctx context.Context, captures []string, f affinityFlags, o message.Options, handle func(*message.Message) error) (*message.Summary, error) {
	if !f.live.live() {
		return message.Read(ctx, captures, o, handle)
	}
	rest, stop, heard, cancel := a.capturing(ctx, f.live)
	defer cancel()
	return message.ReadLive(rest, stop, f.live.options(), o, heard, handle)
}

// reading returns the options for reading captures, which may take half of the memory: the analysis
// takes the other half. --messages has no analysis, but must number messages alike.
func (f *affinityFlags) reading() (message.Options, error) {
	o := message.Options{MaxMemory: 256 << 20}
	if f.memory != "" {
		size, err := document.ParseSize(f.memory)
		if err != nil {
			return o, &vitrine.BadInput{File: "--max-memory", Found: f.memory, Want: err.Error()}
		}
		least := document.Size(1)
		if f.live.live() {
			least = leastLive
		}
		if size < least<<20 {
			return o, &vitrine.BadInput{File: "--max-memory", Found: f.memory, Want: fmt.Sprintf("at least %dMiB", least)}
		}
		o.MaxMemory = int(size) / 2
	}
	if f.names != "" {
		names, err := affinity.LoadNames(f.names)
		if err != nil {
			return o, err
		}
		o.Name = names.Called
	}
	return o, nil
}

// key returns the key for pseudonyms. It returns nil if identities are not replaced.
func (f *affinityFlags) key() (*pseudonym.Key, error) {
	if f.pseudonymise == "" {
		return nil, nil
	}
	return pseudonym.Load(f.pseudonymise)
}

// printMessage prints a message on one line. The time is that of the clock, so that it is found in
// logs and in other programs that read the capture.
func printMessage(out io.Writer, m *message.Message) error {
	_, err := fmt.Fprintf(out, "%d %s %s > %s %s %s", m.ID, time.Unix(0, m.Time).UTC().Format("2006-01-02T15:04:05.000000Z"), m.From, m.To, m.Protocol, m.Name)
	if m.Kind == message.Repeat {
		fmt.Fprint(out, " (repeat)")
	}
	if m.Answers != 0 {
		fmt.Fprintf(out, " of %d", m.Answers)
	}
	if m.Failed {
		fmt.Fprint(out, " failed")
	}
	if m.Cause != "" {
		fmt.Fprintf(out, " cause %s", m.Cause)
	}
	if m.Arrived != 0 {
		fmt.Fprintf(out, " after %v", time.Duration(m.Arrived-m.Time))
	}
	fmt.Fprintf(out, " [%d B]", m.Bytes)
	for _, id := range m.Identifiers {
		fmt.Fprintf(out, " %s=%q", id.Kind, id.Text)
	}
	fmt.Fprintln(out)
	return err
}

// readProgress returns a function that shows the number of bytes read. It returns nil if stderr is
// not a terminal.
func (a *app) readProgress() func(uint64) {
	p := &progress{out: a.stderr, columns: columns(a.stderr)}
	if p.columns == nil {
		return nil
	}
	next := uint64(0)
	return func(bytes uint64) {
		const step = 16 << 20
		if bytes >= next {
			next = bytes + step
			p.line("%d MiB of packets read", bytes>>20)
		}
	}
}
