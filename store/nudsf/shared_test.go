package nudsf_test

import (
	"log/slog"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"vitrine"
	"vitrine/store"
	"vitrine/store/etcd"
	"vitrine/store/nudsf/nudsftest"
	"vitrine/store/redis"
)

// freeAddress gives an address of loopback where nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// serve starts a server of its own, which the test ends.
func serve(t *testing.T, program string, args ...string) {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skip(&vitrine.Unsupported{What: "Nudsf over " + program, Missing: program, Do: "install it"})
	}
	c := exec.CommandContext(t.Context(), path, args...)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
}

// opened gives an engine as soon as its server answers.
func opened[E store.Engine](t *testing.T, open func() (E, error)) store.Engine {
	t.Helper()
	end := time.Now().Add(20 * time.Second)
	for tick := time.NewTicker(20 * time.Millisecond); ; <-tick.C {
		e, err := open()
		if err == nil {
			return e
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

func testLog(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))
}

func TestRedis(t *testing.T) {
	address := freeAddress(t)
	_, port, _ := strings.Cut(address, ":")
	serve(t, "redis-server", "--port", port, "--bind", "127.0.0.1", "--dir", t.TempDir(), "--save", "", "--appendonly", "yes", "--appendfsync", "always")
	nudsftest.Run(t, func(t *testing.T) func() store.Engine {
		return func() store.Engine {
			return opened(t, func() (*redis.Engine, error) {
				return redis.Open(t.Context(), redis.Config{Addresses: []string{address}, Prefix: t.Name(), Now: time.Now, Logger: testLog(t)})
			})
		}
	})
}

func TestEtcd(t *testing.T) {
	client, peer := "http://"+freeAddress(t), "http://"+freeAddress(t)
	serve(t, "etcd", "--name", "one", "--data-dir", t.TempDir(), "--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "one="+peer, "--log-level", "error")
	nudsftest.Run(t, func(t *testing.T) func() store.Engine {
		return func() store.Engine {
			return opened(t, func() (*etcd.Engine, error) {
				return etcd.Open(t.Context(), etcd.Config{Endpoints: []string{client}, Prefix: t.Name() + "/", Dial: 20 * time.Second, Now: time.Now, Logger: testLog(t)})
			})
		}
	})
}
