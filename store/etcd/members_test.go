package etcd_test

import (
	"context"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"vitrine/store"
	"vitrine/store/etcd"
	"vitrine/store/storetest"
)

type members []*storetest.Member

func (all members) endpoints() (endpoints []string) {
	for _, m := range all {
		endpoints = append(endpoints, m.Endpoint)
	}
	return endpoints
}

// leader returns the leading member, or nil if none is known.
func (all members) leader(ctx context.Context, t *testing.T) *storetest.Member {
	t.Helper()
	for _, m := range all {
		if !m.Running() {
			continue
		}
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{m.Endpoint}, Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		status, err := client.Status(ctx, m.Endpoint)
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

func (all members) killLeader(ctx context.Context, t *testing.T) *storetest.Member {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		if m := all.leader(ctx, t); m != nil {
			m.Kill()
			return m
		}
	}
	t.Error("no member is the leader")
	return nil
}

// watched starts a watch, waits for Started, and returns a channel for the error that ends the
// watch.
func watched(t *testing.T, e store.Engine) <-chan error {
	t.Helper()
	began, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		for v, err := range e.Watch(t.Context(), "s", "", 0) {
			if err != nil {
				ended <- err
				return
			}
			if v.Change == store.Started {
				close(began)
			}
		}
		ended <- nil
	}()
	select {
	case <-began:
	case err := <-ended:
		t.Fatalf("the watch did not start: %v", err)
	}
	return ended
}

// TestMembers kills the leader of three members during operations, starts it again, and kills the
// next leader. The history must be linearizable. When only one member is left, a watch must end
// with an error, and reads, writes and watches must soon be refused: their clients wait longer.
func TestMembers(t *testing.T) {
	t.Parallel()
	all := members(storetest.Etcd(t, 3))
	e := open(t, etcd.Config{Endpoints: all.endpoints(), Now: time.Now})
	if p := e.Promises(); p.Durability != store.Consensus || !p.Linearizable {
		t.Fatalf("three members: got promises %+v", p)
	}
	var last *storetest.Member
	storetest.Linearizable(t, storetest.Drive{Engine: e, Workers: 6, Each: 120, Disturb: func() {
		if first := all.killLeader(t.Context(), t); first != nil {
			last = first
		}
	}})
	if last == nil {
		t.Fatal("no member was killed")
	}
	last.Start(t)
	// The restarted member has caught up once it forms a quorum with one other.
	again := open(t, etcd.Config{Endpoints: all.endpoints(), Prefix: "again/", Now: time.Now})
	storetest.Linearizable(t, storetest.Drive{Engine: again, Workers: 6, Each: 120, Disturb: func() {
		last = all.killLeader(t.Context(), t)
	}})
	ended := watched(t, e)
	for _, m := range all {
		if m.Running() {
			m.Kill()
			break
		}
	}
	select {
	case err := <-ended:
		if err == nil {
			t.Error("the watch of a member without a leader ended without an error")
		}
	case <-time.After(time.Minute):
		t.Error("the watch of a member without a leader did not end")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var r store.Record
	for name, do := range map[string]func() error{
		"read":  func() error { return e.Get(ctx, store.Key{Space: "s", Name: "k0"}, &r) },
		"write": func() error { return e.Write(ctx, "s", store.Op{Action: store.Put, Name: "k0"}) },
		"watch": func() error { return storetest.ReadError(t, e.Watch(ctx, "s", "", 0)) },
	} {
		began := time.Now()
		err := do()
		var busy *store.Busy
		if took := time.Since(began); !errors.As(err, &busy) || took > 10*time.Second {
			t.Errorf("%s at one of three members: got %v after %s, want Busy within 10 s", name, err, took)
		}
	}
}
