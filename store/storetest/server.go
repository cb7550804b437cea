package storetest

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"vitrine"
	"vitrine/internal/hosttest"
)

// Redis starts a Redis or Valkey server for this test and returns its address once it answers.
func Redis(t *testing.T, settings ...string) (address string) {
	t.Helper()
	address, _ = RedisProcess(t, settings...)
	return address
}

// RedisProcess is like Redis, and also returns the server's process.
func RedisProcess(t *testing.T, settings ...string) (address string, server *os.Process) {
	t.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		program, err = exec.LookPath("valkey-server")
	}
	if err != nil {
		t.Skip(&vitrine.Unsupported{What: "the engine redis", Missing: "redis-server", Do: "install redis-server"})
	}
	address = hosttest.FreeAddress(t, "tcp")
	_, port, _ := net.SplitHostPort(address)
	server, _ = start(t, program, append([]string{"--port", port, "--bind", "127.0.0.1", "--dir", t.TempDir(), "--save", ""}, settings...)...)
	hosttest.Until(t, 20*time.Second, "Redis answers", func() bool {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		if err != nil {
			return false
		}
		defer c.Close()
		answer := make([]byte, len("+PONG"))
		_, err = io.WriteString(c, "PING\r\n")
		if err == nil {
			_, err = io.ReadFull(c, answer)
		}
		return err == nil && string(answer) == "+PONG"
	})
	return address, server
}

// A Member is one etcd process of a cluster.
type Member struct {
	Endpoint string // URL
	args     []string
	stop     func() // nil: not running
}

// Etcd starts the members of a cluster, one or more, which end with the test. They may not answer
// yet. settings are further arguments of each member.
func Etcd(t *testing.T, members int, settings ...string) []*Member {
	t.Helper()
	var all []*Member
	var cluster []string
	for i := range members {
		m, peer, name := &Member{Endpoint: "http://" + hosttest.FreeAddress(t, "tcp")}, "http://"+hosttest.FreeAddress(t, "tcp"), fmt.Sprint("m", i)
		m.args = []string{
			"--name", name, "--data-dir", t.TempDir(), "--log-level", "error",
			"--listen-client-urls", m.Endpoint, "--advertise-client-urls", m.Endpoint,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
		}
		all, cluster = append(all, m), append(cluster, name+"="+peer)
	}
	for _, m := range all {
		m.args = append(append(m.args, "--initial-cluster", strings.Join(cluster, ",")), settings...)
		m.Start(t)
	}
	return all
}

// Start starts the member, the first time or again.
func (m *Member) Start(t *testing.T) {
	t.Helper()
	program, err := exec.LookPath("etcd")
	if err != nil {
		t.Skip(&vitrine.Unsupported{What: "the engine etcd", Missing: "etcd", Do: "install etcd-server"})
	}
	_, m.stop = start(t, program, m.args...)
}

// Running reports whether the member runs.
func (m *Member) Running() bool { return m.stop != nil }

// Kill ends the member with SIGKILL.
func (m *Member) Kill() {
	if m.stop != nil {
		m.stop()
		m.stop = nil
	}
}

// start runs a program until the test ends, or stop is called.
func start(t *testing.T, program string, args ...string) (process *os.Process, stop func()) {
	t.Helper()
	c := exec.CommandContext(context.WithoutCancel(t.Context()), program, args...)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() { _ = c.Process.Kill(); _ = c.Wait() })
	t.Cleanup(stop)
	return c.Process, stop
}
