package e2e

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"vitrine/internal/hosttest"
	"vitrine/store/client"
)

const (
	// crowd is the number of concurrent attacking connections.
	crowd = 10_000
	// mostConnections and mostPerSource are the store's limits.
	mostConnections, mostPerSource = 4096, 1024
	patience                       = time.Minute
	token                          = "a token of sixteen bytes and more"
	keepers                        = 16
)

// A hostile is a store under attack.
type hostile struct {
	*running
	attackers hosttest.Strangers
	metrics   *http.Client
	clients   []*client.Client
	rate      float64 // of the load; writes per second, each with a read
	base      int64   // resident memory before the attacks, in bytes
	round     int
}

// An attack describes traffic of strangers, or of clients with a token, while a store serves its
// load.
type attack struct {
	name    string
	times   float64       // requests (or connections) per second, as a multiple of the load's writes
	lasts   time.Duration // duration of the load during the attack; 0: 3 s
	counter string        // a metric of the store that must rise
	labels  []string
	run     func(ctx context.Context, rate float64) error
}

// budget returns the memory bound of a store by its configuration, in bytes.
func budget() int64 {
	const (
		bodies, cache, subscriptions, callbacks = 64 << 20, 64 << 20, 64 << 20, 64 << 20
		answers                                 = 256 << 20
		connections                             = mostConnections * 32 << 10
		memtables                               = 4 * 8 << 20
		collected                               = 2 // the heap grows to twice the live heap between two collections
	)
	return cache + memtables + collected*(bodies+subscriptions+callbacks+answers+connections)
}

// TestHostileStore attacks a store while its clients write and read at half of its capacity. All
// their requests must succeed, the attack must be counted, and memory must stay within its bound.
func TestHostileStore(t *testing.T) {
	hosttest.OpenFiles(t, crowd+1000)
	h := newHostile(t)
	for _, a := range []attack{
		h.silentCrowd(), h.slowCrowd(), h.largeHeads(), h.pipelinedGarbage(), h.badTokens(),
		h.largeBodies(), h.slowBodies(), h.deniedCallbacks(t), h.manySubscriptions(), h.bulkSearches(t),
	} {
		h.withstand(t, a)
	}
}

func newHostile(t *testing.T) *hostile {
	t.Helper()
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h := &hostile{running: start(t, "--dir", t.TempDir(), "--listen", "127.0.0.1:0", "--token-file", tokens, "--log", "error", "--max-subscriptions", "100",
		"--max-connections", strconv.Itoa(mostConnections), "--max-connections-per-source", strconv.Itoa(mostPerSource))}
	h.attackers = hosttest.Strangers{Address: h.address}
	for i := range 5 {
		h.attackers.Sources = append(h.attackers.Sources, fmt.Sprintf("127.%d.%d.%d", 60+os.Getpid()%40, 1+os.Getpid()/40%250, 1+i))
	}
	for i := range 4 { // both HTTP versions
		c, err := client.New(client.Config{Base: "http://" + h.address, Token: token, HTTP1: i%2 == 0})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		h.clients = append(h.clients, c)
	}
	h.metrics = h.client("")
	carried := h.capacity(t)
	h.rate = carried / 2
	h.base, _ = hosttest.Resident(t, h.cmd.Process.Pid)
	t.Logf("capacity is %.0f writes/s, each with a read; the load is half of that", carried)
	return h
}

// client returns an HTTP client with one connection, from an address of this host.
func (h *hostile) client(from string) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	d := net.Dialer{Timeout: patience}
	if from != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	return &http.Client{Transport: &http.Transport{Protocols: protocols, DialContext: d.DialContext}}
}

// value returns a metric of the store.
func (h *hostile) value(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	status, text, err := h.ask(t.Context(), h.metrics, http.MethodGet, "/metrics", nil)
	if err != nil || status != http.StatusOK {
		t.Fatalf("metrics: got status %d, error %v", status, err)
	}
	return hosttest.Metric(t, text, name, labels...)
}

// ask sends a request with the token, as a client that the store accepts.
func (h *hostile) ask(ctx context.Context, c *http.Client, method, path string, body io.Reader) (status int, text string, err error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+h.address+path, body)
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	if strings.Contains(path, "/records/") {
		r.Header.Set("Content-Type", "multipart/mixed; boundary=b")
	}
	answer, err := c.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(data), err
}

// capacity returns how many writes per second, each with a read, the store serves.
func (h *hostile) capacity(t *testing.T) float64 {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Second)
	defer stop()
	var written atomic.Int64
	began := time.Now()
	err := h.keep(t.Context(), func(k *keeper) error {
		for ctx.Err() == nil {
			if err := k.write(t.Context()); err != nil {
				return err
			}
			written.Add(1)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return max(float64(written.Load())/time.Since(began).Seconds(), 2)
}

// A keeper writes numbers to a key of its own and reads them back.
type keeper struct {
	kv   *client.KV
	key  string
	last int
}

// keep runs all keepers.
func (h *hostile) keep(ctx context.Context, run func(*keeper) error) error {
	h.round++
	g, _ := errgroup.WithContext(ctx)
	for i := range keepers {
		k := &keeper{kv: h.clients[i%len(h.clients)].KV("load"), key: fmt.Sprintf("keeper-%d-%d", h.round, i)}
		g.Go(func() error { return run(k) })
	}
	return g.Wait()
}

// write writes the next number and reads it back. It repeats requests that the store refuses for
// now.
func (k *keeper) write(ctx context.Context) error {
	k.last++
	want := strconv.Itoa(k.last)
	err := persist(ctx, func(ctx context.Context) error {
		_, err := k.kv.Put(ctx, k.key, []byte(want), "text/plain", 0, client.Conditions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", k.key, err)
	}
	var got *client.Value
	err = persist(ctx, func(ctx context.Context) (err error) {
		got, err = k.kv.Get(ctx, k.key, client.Conditions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("read %s: %w", k.key, err)
	}
	if string(got.Data) != want {
		return fmt.Errorf("%s is %q, want %s", k.key, got.Data, want)
	}
	return nil
}

// persist repeats a request as a client does: after the time that the store asks for, or soon on a
// new connection.
func persist(ctx context.Context, do func(context.Context) error) (err error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	for ctx.Err() == nil {
		if err = do(ctx); err == nil {
			return nil
		}
		var refused *client.Error
		if errors.As(err, &refused) && refused.Status != http.StatusServiceUnavailable {
			return err
		}
		wait := 10 * time.Millisecond
		if refused != nil {
			wait = refused.RetryAfter
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	return err
}

// load writes and reads at the load's rate for a time. It returns the number of writes.
func (h *hostile) load(ctx context.Context, lasting time.Duration) (int64, error) {
	due := make(chan struct{}, int(h.rate*lasting.Seconds())+1)
	timed, stop := context.WithTimeout(ctx, lasting)
	defer stop()
	var all errgroup.Group
	all.Go(func() error {
		defer close(due)
		_, err := hosttest.Pace(timed, h.rate, func(int) error {
			due <- struct{}{}
			return nil
		})
		return err
	})
	var written atomic.Int64
	all.Go(func() error {
		return h.keep(ctx, func(k *keeper) error {
			for range due {
				if err := k.write(ctx); err != nil {
					return err
				}
				written.Add(1)
			}
			return nil
		})
	})
	err := all.Wait()
	return written.Load(), err
}

// withstand attacks the store while it serves its load.
func (h *hostile) withstand(t *testing.T, a attack) {
	t.Run(a.name, func(t *testing.T) {
		was := h.value(t, a.counter, a.labels...)
		hosttest.ForgetPeak(t, h.cmd.Process.Pid)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var attacking errgroup.Group
		began := time.Now()
		attacking.Go(func() error { return a.run(ctx, a.times*h.rate) })
		written, err := h.load(t.Context(), cmp.Or(a.lasts, 3*time.Second))
		took := time.Since(began)
		stop()
		if err := errors.Join(err, attacking.Wait()); err != nil {
			t.Error(err)
		}
		_, peak := hosttest.Resident(t, h.cmd.Process.Pid)
		rose := h.value(t, a.counter, a.labels...) - was
		t.Logf("%d writes and reads in %s; %s%v rose by %.0f; resident memory %d MB at most, %d MB before",
			written, took.Round(time.Millisecond), a.counter, a.labels, rose, peak>>20, h.base>>20)
		if written == 0 || rose == 0 {
			t.Errorf("%d writes, and the attack was counted %.0f times, want both above 0", written, rose)
		}
		if most := h.base + budget(); peak > most {
			t.Errorf("resident memory is %d MB, want at most %d MB", peak>>20, most>>20)
		}
	})
}

const refusals = "vitrine_store_refused_total"

// silentCrowd opens connections and sends nothing.
func (h *hostile) silentCrowd() attack {
	return h.crowd("silent connections", func(net.Conn, int) {})
}

// slowCrowd sends a request at one byte a second on each connection.
func (h *hostile) slowCrowd() attack {
	text := []byte("GET /kv/key HTTP/1.1\r\nHost: store\r\nAuthorization: Bearer " + token + "\r\n\r\n")
	return h.crowd("connections that send a byte a second", func(c net.Conn, second int) {
		_ = c.SetWriteDeadline(time.Now().Add(time.Second)) // fails when the store has closed the connection
		_, _ = c.Write(text[second%len(text) : second%len(text)+1])
	})
}

func (h *hostile) crowd(name string, act func(net.Conn, int)) attack {
	return attack{
		name: name, lasts: 5 * time.Second, counter: refusals, labels: []string{`cause="head"`},
		run: func(ctx context.Context, _ float64) error { return h.attackers.Crowd(ctx, crowd, patience, act) },
	}
}

// burst returns an attack by connections. Each connection sends one text.
func (h *hostile) burst(name string, times float64, cause string, text func(n int) [][]byte) attack {
	return attack{
		name: name, times: times, counter: refusals, labels: []string{`cause="` + cause + `"`},
		run: func(ctx context.Context, rate float64) error {
			_, err := h.attackers.Burst(ctx, rate, false, text)
			return err
		},
	}
}

// largeHeads sends heads that do not end, in small and in large pieces.
func (h *hostile) largeHeads() attack {
	head := append([]byte("GET /kv/key HTTP/1.1\r\nHost: store\r\nX: "), bytes.Repeat([]byte("x"), 80_000)...)
	return h.burst("oversized heads", 0.02, "head", func(n int) (pieces [][]byte) {
		size := []int{64, 1024, len(head)}[n%3]
		for rest := head; len(rest) > 0; rest = rest[min(size, len(rest)):] {
			pieces = append(pieces, rest[:min(size, len(rest))])
		}
		return pieces
	})
}

// pipelinedGarbage sends requests without waiting for answers, and then garbage.
func (h *hostile) pipelinedGarbage() attack {
	text := bytes.Repeat([]byte("GET /kv/key HTTP/1.1\r\nHost: store\r\n\r\n"), 50)
	text = append(text, bytes.Repeat([]byte("\x00\xff garbage \r\n"), 2000)...)
	return h.burst("pipelined garbage", 0.1, "token", func(int) [][]byte { return [][]byte{text} })
}

// badTokens guesses tokens.
func (h *hostile) badTokens() attack {
	return h.burst("bad tokens", 1, "token", func(n int) [][]byte {
		return [][]byte{fmt.Appendf(nil, "PUT /kv/key HTTP/1.1\r\nHost: store\r\nAuthorization: Bearer %032d\r\nContent-Length: 4\r\n\r\nevil", n)}
	})
}

// put returns the head of a PUT with the token.
func put(path, length string) []byte {
	return fmt.Appendf(nil, "PUT %s HTTP/1.1\r\nHost: store\r\nAuthorization: Bearer %s\r\nContent-Type: text/plain\r\n%s\r\n\r\n", path, token, length)
}

// largeBodies sends bodies that are larger than a value may be, with and without Content-Length.
func (h *hostile) largeBodies() attack {
	piece := bytes.Repeat([]byte("x"), 64<<10)
	a := h.burst("oversized bodies", 0.05, "size", func(n int) (pieces [][]byte) {
		pieces = append(pieces, put("/kv/large", "Content-Length: 67108864"))
		chunk := piece
		if n%2 == 0 {
			pieces[0] = put("/kv/large", "Transfer-Encoding: chunked")
			chunk = append(fmt.Appendf(nil, "%x\r\n", len(piece)), append(piece, "\r\n"...)...)
		}
		for range 40 {
			pieces = append(pieces, chunk)
		}
		return pieces
	})
	return a
}

// slowBodies announces bodies of 1 MiB on many connections and does not send them.
func (h *hostile) slowBodies() attack {
	head := append(put("/kv/slow", "Content-Length: 1048000"), 'x')
	return attack{
		name: "bodies that do not come", counter: refusals, labels: []string{`cause="bodies"`},
		run: func(ctx context.Context, _ float64) error {
			var open []net.Conn
			defer func() {
				for _, c := range open {
					_ = c.Close()
				}
			}()
			for n := range 500 {
				c, err := h.attackers.Dial(context.WithoutCancel(ctx), n, nil) // an attack that has begun is made
				if err != nil {
					return err
				}
				open = append(open, c)
				if _, err := c.Write(head); err != nil {
					return err
				}
			}
			<-ctx.Done()
			return nil
		},
	}
}

// asks sends requests that the store accepts, from the attackers' addresses. It fails if the status
// of an answer is neither in want nor 503.
func (h *hostile) asks(ctx context.Context, rate float64, request func(n int) (method, path, body string, want []int)) error {
	var all []*http.Client
	for _, from := range h.attackers.Sources {
		all = append(all, h.client(from))
	}
	var g errgroup.Group
	g.SetLimit(200)
	_, err := hosttest.Pace(ctx, rate, func(n int) error {
		g.Go(func() error {
			method, path, body, want := request(n)
			status, text, err := h.ask(ctx, all[n%len(all)], method, path, bytes.NewReader([]byte(body)))
			switch {
			case err != nil && ctx.Err() == nil:
				return err
			case err != nil: // the attack is over
				status = http.StatusServiceUnavailable
			}
			for _, w := range append(want, http.StatusServiceUnavailable) {
				if status == w {
					return nil
				}
			}
			return fmt.Errorf("%s %s: %d %.200s, want %v", method, path, status, text, want)
		})
		return nil
	})
	return errors.Join(err, g.Wait())
}

// subscription returns the body of a subscription.
func subscription(callback string) string {
	return fmt.Sprintf(`{"clientId": {"nfId": "6faf1bbc-6e4a-4454-a507-a14ef8e1bc5a"}, "callbackReference": %q}`, callback)
}

// record is the body of a record with a tag and no block.
func record(tag string) string {
	return "--b\r\nContent-Id: meta\r\nContent-Type: application/json\r\n\r\n{\"tags\":{\"t\":[\"" + tag + "\"]}}\r\n--b--\r\n"
}

// deniedCallbacks makes subscriptions for addresses that callbacks may not go to, and for a name
// that resolves to such an address.
func (h *hostile) deniedCallbacks(t *testing.T) attack {
	t.Helper()
	var reached atomic.Int64
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = l.Close()
		if n := reached.Load(); n > 0 {
			t.Errorf("%d callbacks reached a denied address, want 0", n)
		}
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			reached.Add(1)
			_ = c.Close()
		}
	}()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	hosts := []string{"127.0.0.1", "[::1]", "169.254.169.254", "224.0.0.1", "0.0.0.0", "255.255.255.255", "[::ffff:127.0.0.1]", "127.1.2.3"}
	return attack{
		name: "callbacks to denied addresses", times: 0.2, counter: "vitrine_store_callbacks_total", labels: []string{`outcome="refused"`},
		run: func(ctx context.Context, rate float64) error {
			const storage = "/nudsf-dr/v1/Hostile/Denied"
			return h.asks(ctx, rate, func(n int) (string, string, string, []int) {
				path := fmt.Sprintf("%s/subs-to-notify/s%d", storage, n)
				switch {
				case n < 5:
					return http.MethodPut, path, subscription("http://localhost:" + port + "/"), []int{201}
				case n%2 == 0:
					return http.MethodPut, path, subscription("http://" + hosts[n/2%len(hosts)] + ":" + port + "/"), []int{400}
				}
				return http.MethodPut, fmt.Sprintf("%s/records/r%d", storage, n%50), record("x"), []int{201, 204}
			})
		},
	}
}

// manySubscriptions makes more subscriptions than a storage may have, and changes the records that
// they watch. Their receiver does not answer.
func (h *hostile) manySubscriptions() attack {
	return attack{
		name: "many subscriptions", times: 0.3, counter: "vitrine_store_notifications_total", labels: []string{`outcome="dropped"`},
		run: func(ctx context.Context, rate float64) error {
			const storage = "/nudsf-dr/v1/Hostile/Many"
			return h.asks(ctx, rate, func(n int) (string, string, string, []int) {
				if n%5 == 0 {
					return http.MethodPut, fmt.Sprintf("%s/records/r%d", storage, n%50), record("x"), []int{201, 204}
				}
				return http.MethodPut, fmt.Sprintf("%s/subs-to-notify/s%d", storage, n), subscription("http://192.0.2.1:8080/"), []int{201, 403}
			})
		},
	}
}

// bulkSearches asks on many connections for all records with their content, and reads no answer.
func (h *hostile) bulkSearches(t *testing.T) attack {
	t.Helper()
	const storage = "/nudsf-dr/v1/Hostile/Bulk"
	content := bytes.Repeat([]byte("x"), 100_000)
	var filling errgroup.Group
	filling.SetLimit(8)
	for i := range 200 {
		filling.Go(func() error {
			body := fmt.Sprintf("--b\r\nContent-Id: meta\r\nContent-Type: application/json\r\n\r\n{\"tags\":{\"t\":[\"%d\"]}}\r\n--b\r\nContent-Id: block\r\nContent-Type: text/plain\r\n\r\n%s\r\n--b--\r\n", i, content)
			status, text, err := h.ask(t.Context(), h.metrics, http.MethodPut, fmt.Sprintf("%s/records/r%d", storage, i), bytes.NewReader([]byte(body)))
			if err == nil && status != http.StatusCreated {
				err = fmt.Errorf("%d %s", status, text)
			}
			return err
		})
	}
	if err := filling.Wait(); err != nil {
		t.Fatalf("fill the storage: %v", err)
	}
	search := []byte("GET " + storage + "/records?retrieve-records=META_AND_BLOCKS HTTP/1.1\r\nHost: store\r\nAuthorization: Bearer " + token + "\r\n\r\n")
	return attack{
		name: "bulk searches", counter: refusals, labels: []string{`cause="answers"`},
		run: func(ctx context.Context, _ float64) error {
			var all sync.WaitGroup
			defer all.Wait()
			for n := range 300 {
				c, err := h.attackers.Dial(context.WithoutCancel(ctx), n, nil) // an attack that has begun is made
				if err != nil {
					return err
				}
				if _, err := c.Write(search); err != nil {
					_ = c.Close()
					return err
				}
				all.Go(func() {
					<-ctx.Done() // reads nothing until the attack is over
					_ = c.Close()
				})
			}
			return nil
		},
	}
}
