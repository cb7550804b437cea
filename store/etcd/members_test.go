package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"vitrine"
	"vitrine/store"
	"vitrine/store/etcd"
	"vitrine/store/storetest"
)

// A member is one etcd of several.
type member struct {
	client string
	args   []string
	cmd    *exec.Cmd // nil: killed
}

type members []*member

// serveThree starts three members of one cluster, which the test ends.
func serveThree(t *testing.T) members {
	t.Helper()
	if _, err := exec.LookPath("etcd"); err != nil {
		t.Skip(&vitrine.Unsupported{What: "the engine etcd", Missing: "etcd", Do: "install etcd-server"})
	}
	var all members
	var cluster []string
	for i := range 3 {
		client, peer := freeURL(t), freeURL(t)
		name := fmt.Sprint("m", i)
		cluster = append(cluster, name+"="+peer)
		all = append(all, &member{client: client, args: []string{
			"--name", name, "--data-dir", t.TempDir(), "--log-level", "error",
			"--listen-client-urls", client, "--advertise-client-urls", client,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
		}})
	}
	for _, m := range all {
		m.args = append(m.args, "--initial-cluster", strings.Join(cluster, ","))
		m.start(t)
		t.Cleanup(m.kill)
	}
	return all
}

func (m *member) start(t *testing.T) {
	t.Helper()
	m.cmd = exec.Command("etcd", m.args...)
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
}

// kill ends the member at once, whatever it is doing.
func (m *member) kill() {
	if m.cmd != nil {
		_ = m.cmd.Process.Kill()
		_ = m.cmd.Wait()
		m.cmd = nil
	}
}

func (all members) endpoints() (endpoints []string) {
	for _, m := range all {
		endpoints = append(endpoints, m.client)
	}
	return endpoints
}

// leader is the member that leads; nil: none that is known of.
func (all members) leader(ctx context.Context, t *testing.T) *member {
	t.Helper()
	for _, m := range all {
		if m.cmd == nil {
			continue
		}
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{m.client}, Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		status, err := client.Status(ctx, m.client)
		cancel()
		if closing := client.Close(); closing != nil {
			t.Fatal(closing)
		}
		if err == nil && status.Leader == status.Header.MemberId {
			return m
		}
	}
	return nil
}

func (all members) killLeader(ctx context.Context, t *testing.T) *member {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		if m := all.leader(ctx, t); m != nil {
			m.kill()
			return m
		}
	}
	t.Error("no member leads")
	return nil
}

// TestMembers: of three members the one that leads is killed amid operations, comes
// back, and the one that leads then is killed. There is an order that explains all
// that was seen, and with one member alone nothing is answered as if it were done.
func TestMembers(t *testing.T) {
	all := serveThree(t)
	e := open(t, etcd.Config{Endpoints: all.endpoints(), Now: time.Now})
	if p := e.Promises(); p.Durability != store.Consensus || !p.Linearizable {
		t.Fatalf("three members promise %+v", p)
	}
	var last *member
	storetest.Linearizable(t, storetest.Drive{Engine: e, Workers: 6, Each: 120, Disturb: func() {
		if first := all.killLeader(t.Context(), t); first != nil {
			last = first
		}
	}})
	if last == nil {
		t.Fatal("nothing was killed")
	}
	last.start(t)
	// The member that is back has caught up when two of the three, it among them, serve.
	again := open(t, etcd.Config{Endpoints: all.endpoints(), Prefix: "again/", Now: time.Now})
	storetest.Linearizable(t, storetest.Drive{Engine: again, Workers: 6, Each: 120, Disturb: func() {
		last = all.killLeader(t.Context(), t)
	}})
	for _, m := range all {
		if m.cmd != nil {
			m.kill()
			break
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	var r store.Record
	if err := e.Get(ctx, store.Key{Space: "s", Name: "k0"}, &r); err == nil || errors.Is(err, store.ErrNotFound) {
		t.Errorf("one member of three answers: %v", err)
	}
}
