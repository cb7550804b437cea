package hosttest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/procfs"
	"golang.org/x/sync/errgroup"

	"vitrine"
)

// Pace calls do at a rate per second until ctx ends or do fails. It returns the number of calls.
func Pace(ctx context.Context, rate float64, do func(n int) error) (done int, err error) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for start := time.Now(); ; {
		select {
		case <-ctx.Done():
			return done, nil
		case <-tick.C:
		}
		for due := int(rate * time.Since(start).Seconds()); done < due && ctx.Err() == nil; done++ {
			if err := do(done); err != nil {
				return done, err
			}
		}
	}
}

// OpenFiles lets this process have n open files. It skips the test if the host does not allow
// that.
func OpenFiles(t testing.TB, n uint64) {
	t.Helper()
	var have syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &have); err != nil {
		t.Fatal(err)
	}
	if have.Cur >= n {
		return
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: n, Max: max(have.Max, n)}); err != nil {
		Need(t, &vitrine.Unsupported{What: "many connections", Missing: fmt.Sprintf("%d open files: %v", n, err), Do: "raise ulimit -n"})
	}
}

// Memory returns the resident memory of a process in bytes: now, and its peak since the process
// began or since ForgetPeak.
func Memory(pid int) (now, peak int64, err error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0, 0, err
	}
	status, err := process.NewStatus()
	if err == nil && (status.VmRSS == 0 || status.VmHWM == 0) {
		err = fmt.Errorf("process %d has no resident memory: %s", pid, status.Name)
	}
	return int64(status.VmRSS), int64(status.VmHWM), err
}

// Resident is like Memory, but an error fails the test.
func Resident(t testing.TB, pid int) (now, peak int64) {
	t.Helper()
	now, peak, err := Memory(pid)
	if err != nil {
		t.Fatal(err)
	}
	return now, peak
}

// ForgetPeak resets the peak of a process's resident memory (proc(5), clear_refs).
func ForgetPeak(t testing.TB, pid int) {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
}

// Scrape returns the metrics that a component serves at an address.
func Scrape(address string) (text string, err error) {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	if err != nil {
		return "", err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return string(body), err
}

// Metric returns the sum of samples in a text in Prometheus's format. The samples have the name
// and all the given labels, such as kind="read".
func Metric(t testing.TB, text, name string, labels ...string) (sum float64) {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("read the metrics: %v", err)
	}
	samples, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{}, slices.Collect(maps.Values(families))...)
	if err != nil {
		t.Fatalf("read the metrics: %v", err)
	}
	for _, s := range samples {
		lacks := func(label string) bool {
			of, value, _ := strings.Cut(label, "=")
			return strconv.Quote(string(s.Metric[model.LabelName(of)])) != value
		}
		if string(s.Metric[model.MetricNameLabel]) == name && !slices.ContainsFunc(labels, lacks) {
			sum += float64(s.Value)
		}
	}
	return sum
}

// Strangers are hosts that open TCP connections to a server.
type Strangers struct {
	Address string   // of the server
	Sources []string // IP addresses of this host, used in turn
}

// Dial opens connection n. control may set options of its socket; nil: none.
func (s Strangers) Dial(ctx context.Context, n int, control func(network, address string, c syscall.RawConn) error) (net.Conn, error) {
	from := net.ParseIP(s.Sources[n%len(s.Sources)])
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: from}, Timeout: time.Minute, Control: control}
	return d.DialContext(ctx, "tcp", s.Address)
}

// Crowd opens connections and calls act for each of them once a second until ctx ends. Then it
// waits until the server has closed all of them. It fails if one is still open after the limit.
func (s Strangers) Crowd(ctx context.Context, size int, limit time.Duration, act func(c net.Conn, second int)) error {
	all := make([]net.Conn, size)
	defer func() {
		for _, c := range all {
			if c != nil {
				_ = c.Close() // the server has closed it, or the test fails
			}
		}
	}()
	var gathering errgroup.Group
	gathering.SetLimit(16)
	for i := range all {
		gathering.Go(func() error {
			c, err := s.Dial(context.WithoutCancel(ctx), i, nil) // once begun, an attack is completed
			if err == nil {
				all[i] = c
			}
			return err
		})
	}
	if err := gathering.Wait(); err != nil {
		return err
	}
	if _, err := Pace(ctx, float64(size), func(n int) error {
		act(all[n%size], n/size)
		return nil
	}); err != nil {
		return err
	}
	return awaitEnds(all, limit)
}

// awaitEnds waits until the peer has closed all connections.
func awaitEnds(all []net.Conn, limit time.Duration) error {
	deadline, rest := time.Now().Add(limit), make([]byte, 4096)
	for i, c := range all {
		if err := c.SetReadDeadline(deadline); err != nil {
			return err
		}
		for err := error(nil); err == nil; {
			if _, err = c.Read(rest); errors.Is(err, os.ErrDeadlineExceeded) {
				return fmt.Errorf("connection %d of %d is still open after %s", i, len(all), limit)
			}
		}
	}
	return nil
}

// Burst opens connections at a rate, at least two per second, until ctx ends. On each it writes
// the result of text, waits for an answer of one byte, and closes. If deaf is true, it reads
// nothing instead until ctx ends. The server may close a connection before that. Burst returns how
// many connections it began to open.
func (s Strangers) Burst(ctx context.Context, rate float64, deaf bool, text func(n int) [][]byte) (begun int, err error) {
	var g errgroup.Group
	g.SetLimit(64)
	var control func(network, address string, c syscall.RawConn) error
	if deaf {
		control = smallReceiveBuffer
	}
	begun, err = Pace(ctx, max(rate, 2), func(n int) error {
		g.Go(func() error {
			c, err := s.Dial(ctx, n, control)
			if err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return err
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(5 * time.Second))
			for _, piece := range text(n) {
				if _, err := c.Write(piece); err != nil {
					return nil // the server has closed the connection
				}
			}
			if deaf {
				<-ctx.Done()
				return nil
			}
			_, _ = c.Read(make([]byte, 1))
			return nil
		})
		return nil
	})
	return begun, errors.Join(err, g.Wait())
}

// smallReceiveBuffer sets an option of a client's socket.
func smallReceiveBuffer(_, _ string, c syscall.RawConn) (err error) {
	control := c.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 2048)
	})
	return errors.Join(control, err)
}
