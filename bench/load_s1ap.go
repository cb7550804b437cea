package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"vitrine/load"
	"vitrine/load/s1ap"
	"vitrine/reference/epc/epctest"
	"vitrine/reference/epc/mme"
	"vitrine/wire/identity"
)

// The trial of the built-in generator: attach and detach of UEs at one eNodeB.
const (
	s1apRate     = 1000 // calls per second
	s1apDuration = 5    // seconds
)

//go:embed replayer/replayer.c
var replayerSource []byte

// loadS1AP compares how many calls the built-in generator and a loop in C make per second of CPU
// time. The CPU time is that of the whole process. The loop replays a recorded trial: it sends the
// same octets at the same times, without UEs, keys or a report. The generator calls the reference
// MME. The loop calls a recording of that MME.
func loadS1AP(ctx context.Context, dir string, progress io.Writer) (rows []Row, err error) {
	replayer, err := compileC(ctx, dir, "replayer", replayerSource)
	if err != nil {
		return nil, err
	}
	trial := load.Trial{Rate: s1apRate, Duration: s1apDuration}
	ours := func(ctx context.Context) (float64, error) {
		return withMME(ctx, func(ctx context.Context, target string) (float64, error) {
			calls, cpu, err := attachAndDetach(ctx, target, trial)
			return calls / cpu, err
		})
	}
	var calls float64
	recording, err := recordS1AP(ctx, func(ctx context.Context, target string) (err error) {
		calls, _, err = attachAndDetach(ctx, target, trial)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("record a trial: %w", err)
	}
	file := filepath.Join(dir, "uplink")
	if err := os.WriteFile(file, recording.uplink(), 0o600); err != nil {
		return nil, err
	}
	theirs := func(ctx context.Context) (float64, error) {
		cpu, err := recording.replay(ctx, replayer, file)
		return calls / cpu, err
	}
	return compareSides(ctx, minRounds, "load/s1ap", "calls/CPU-s", "a bare loop in C that sends the same bytes at the same times, S1AP over framed TCP", "",
		ours, theirs, progress)
}

// attachAndDetach runs a trial in a process of its own. It returns the number of calls that
// succeeded, and the CPU time of the process in seconds.
func attachAndDetach(ctx context.Context, target string, trial load.Trial) (calls, cpu float64, err error) {
	trial.Params, trial.Targets = map[string]string{"scenario": s1ap.AttachDetach}, []string{target}
	report, cpu, err := runBuiltIn(ctx, (*exec.Cmd).Start, "s1ap", trial)
	if err == nil && report.Succeeded < report.Scheduled*99/100 {
		err = fmt.Errorf("the built-in generator made %d of %d calls: %v", report.Succeeded, report.Scheduled, report.Failed)
	}
	return float64(report.Succeeded), cpu, err
}

// withMME runs the measurement against a fresh MME of the reference EPC. MME, HSS and gateway are
// in this process.
func withMME[T any](ctx context.Context, measure func(context.Context, string) (T, error)) (got T, err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return got, err
	}
	home, _ := identity.MakePLMN("001", "01")
	m := mme.New(mme.Config{
		GUMMEI: identity.GUMMEI{PLMN: home, Group: 1}, Instance: 1, Log: slog.New(slog.DiscardHandler),
		Subscribers: epctest.NewHSS(home), Gateway: epctest.NewGateway(), CallTime: time.Minute, Timers: mme.Timers{NAS: time.Minute},
	})
	serving, stop := context.WithCancel(ctx)
	var group errgroup.Group
	group.Go(func() error { return m.Serve(serving, listener) })
	got, err = measure(ctx, listener.Addr().String())
	stop()
	return got, errors.Join(err, group.Wait())
}

// A conversation holds the bytes of one connection, in the order in which they reached a relay.
type conversation struct {
	mu     sync.Mutex
	begun  time.Time
	chunks []chunk
}

// A chunk is the bytes of one read.
type chunk struct {
	up   bool // from the eNodeB
	at   time.Duration
	data []byte
}

// recordS1AP records a trial against a fresh MME. run runs the trial against target, a relay to the MME.
func recordS1AP(ctx context.Context, run func(ctx context.Context, target string) error) (*conversation, error) {
	return withMME(ctx, func(ctx context.Context, at string) (*conversation, error) {
		c := &conversation{}
		return c, withServer(ctx, func(client net.Conn) error { return c.relay(ctx, client, at) }, func(port int) error {
			return run(ctx, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		})
	})
}

// withServer listens on a port and calls do with it. serve gets the first connection. Later
// connections are not accepted.
func withServer(ctx context.Context, serve func(net.Conn) error, do func(port int) error) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var group errgroup.Group
	group.Go(func() error {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		return errors.Join(serve(conn), conn.Close())
	})
	err = do(listener.Addr().(*net.TCPAddr).Port)
	return errors.Join(err, listener.Close(), group.Wait())
}

// relay copies bytes between a client and a target until both have ended, and records them.
func (c *conversation) relay(ctx context.Context, client net.Conn, target string) error {
	server, err := new(net.Dialer).DialContext(ctx, "tcp4", target)
	if err != nil {
		return err
	}
	c.begun = time.Now()
	var group errgroup.Group
	group.Go(func() error { return c.pass(client, server, true) })
	group.Go(func() error { return c.pass(server, client, false) })
	return errors.Join(group.Wait(), server.Close())
}

func (c *conversation) pass(from, to net.Conn, up bool) error {
	buffer := make([]byte, 1<<16)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			c.mu.Lock()
			c.chunks = append(c.chunks, chunk{up, time.Since(c.begun), bytes.Clone(buffer[:n])})
			c.mu.Unlock()
			if _, err := to.Write(buffer[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return to.(*net.TCPConn).CloseWrite()
		} else if err != nil {
			return err
		}
	}
}

// uplink returns the eNodeB's chunks in the format of the replayer. A chunk has its time in ns and
// its length, both as a native 64-bit number, and then its bytes.
func (c *conversation) uplink() (b []byte) {
	for _, k := range c.chunks {
		if k.up {
			b = binary.NativeEndian.AppendUint64(b, uint64(k.at))
			b = binary.NativeEndian.AppendUint64(b, uint64(len(k.data)))
			b = append(b, k.data...)
		}
	}
	return b
}

// answers returns the number of bytes that the MME sent.
func (c *conversation) answers() (n int) {
	for _, k := range c.chunks {
		if !k.up {
			n += len(k.data)
		}
	}
	return n
}

// replay runs the replayer against the recording. It returns the CPU time of the replayer's process
// in seconds.
func (c *conversation) replay(ctx context.Context, program, file string) (cpu float64, err error) {
	var cmd *exec.Cmd
	err = withServer(ctx, c.answer, func(port int) error {
		cmd = exec.CommandContext(ctx, program, strconv.Itoa(port), file, strconv.Itoa(c.answers()))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("the replayer: %w: %s", err, out)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return cpuSeconds(cmd), nil
}

// answer replays the MME. It sends each answer once the bytes recorded before it have arrived. It
// fails if other bytes arrive.
func (c *conversation) answer(client net.Conn) error {
	var got []byte
	for i, k := range c.chunks {
		if !k.up {
			if _, err := client.Write(k.data); err != nil {
				return err
			}
			continue
		}
		got = append(got[:0], k.data...)
		if _, err := io.ReadFull(client, got); err != nil {
			return err
		}
		if !bytes.Equal(got, k.data) {
			return fmt.Errorf("chunk %d: other bytes than the recorded ones", i)
		}
	}
	return nil
}
