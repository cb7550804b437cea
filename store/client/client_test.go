package client_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"vitrine/store/client"
	"vitrine/store/embedded"
	"vitrine/store/kv"
	"vitrine/store/nudsf"
	"vitrine/store/nudsf/wire"
)

// serve runs both APIs over an engine. It returns one client for each HTTP version.
func serve(t *testing.T) []*client.Client {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	engine, err := embedded.Open(embedded.Config{Dir: t.TempDir(), Now: time.Now, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	function, err := nudsf.New(nudsf.Config{Engine: engine, Clock: time.Now, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	function.Mount(mux)
	plain := kv.New(kv.Config{Engine: engine, Now: time.Now})
	mux.Handle(kv.Root, plain)
	mux.Handle(kv.Root+"/", plain)
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	web := &http.Server{Handler: mux, Protocols: protocols, ReadHeaderTimeout: time.Minute}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var group sync.WaitGroup
	group.Go(func() { _ = web.Serve(listener) })
	group.Go(func() { _ = function.Run(ctx) })
	t.Cleanup(func() {
		_ = web.Close()
		cancel()
		group.Wait()
		_ = engine.Close()
	})
	var clients []*client.Client
	for _, http1 := range []bool{false, true} {
		c, err := client.New(client.Config{Base: "http://" + listener.Addr().String(), HTTP1: http1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		clients = append(clients, c)
	}
	return clients
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestPlain(t *testing.T) {
	t.Parallel()
	for i, c := range serve(t) {
		ctx := t.Context()
		k := c.KV([]string{"", "other"}[i])
		if _, err := k.Get(ctx, "a/b c", client.Conditions{}); !client.NotFound(err) {
			t.Fatalf("get of a missing record: got %v, want not found", err)
		}
		tag := must[string](t)(k.Put(ctx, "a/b c", []byte("one"), "text/plain", time.Hour, client.Conditions{IfNoneMatch: "*"}))
		if _, err := k.Put(ctx, "a/b c", []byte("two"), "text/plain", 0, client.Conditions{IfNoneMatch: "*"}); !client.Unmet(err) {
			t.Errorf("put with an unmet condition: got %v", err)
		}
		v := must[*client.Value](t)(k.Get(ctx, "a/b c", client.Conditions{}))
		if string(v.Data) != "one" || v.ETag != tag || v.ContentType != "text/plain" || time.Until(v.Expires) < 59*time.Minute {
			t.Errorf("got record %+v", v)
		}
		if _, err := k.Get(ctx, "a/b c", client.Conditions{IfNoneMatch: tag}); !errors.Is(err, client.ErrNotModified) {
			t.Errorf("get of an unchanged record: got %v, want ErrNotModified", err)
		}
		results := must[[]client.Result](t)(k.Batch(ctx, client.Change{Op: "put", Key: "x", Value: []byte("1")}, client.Change{Op: "delete", Key: "a/b c", IfMatch: tag}))
		if len(results) != 2 || !results[1].Existed {
			t.Errorf("got batch results %+v", results)
		}
		var keys []string
		for e, err := range k.List(ctx, "", true) {
			if err != nil {
				t.Fatal(err)
			}
			keys = append(keys, e.Key+"="+string(e.Value))
		}
		if !slices.Equal(keys, []string{"x=1"}) {
			t.Errorf("got keys %v, want x=1", keys)
		}
		for _, key := range []string{"y", "z"} {
			must[string](t)(k.Put(ctx, key, []byte("1"), "text/plain", 0, client.Conditions{}))
		}
		page := must[client.Page](t)(k.Page(ctx, "", "x", 1, false))
		if len(page.Records) != 1 || page.Records[0].Key != "y" || page.Records[0].Value != nil || page.Next != "y" {
			t.Errorf("got page %+v", page)
		}
		if err := k.Delete(ctx, "x", client.Conditions{}); err != nil {
			t.Error(err)
		}
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	for _, c := range serve(t) {
		k := c.KV("")
		var names []string
		for e, err := range k.Watch(t.Context(), "w/", 0, true) {
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, e.Name+" "+e.Entry.Key+" "+string(e.Entry.Value))
			switch e.Name {
			case "started":
				must[string](t)(k.Put(t.Context(), "w/1", []byte("v"), "text/plain", 0, client.Conditions{}))
				if err := k.Delete(t.Context(), "w/1", client.Conditions{}); err != nil {
					t.Fatal(err)
				}
			case "deleted":
				if got := strings.Join(names[:2], "; "); !strings.HasSuffix(got, "written w/1 v") || e.Version == 0 {
					t.Errorf("got events %q", names)
				}
			}
			if e.Name == "deleted" {
				break
			}
		}
	}
}

func TestStandard(t *testing.T) {
	t.Parallel()
	for i, c := range serve(t) {
		ctx := t.Context()
		s := c.Storage("Realm01", []string{"Storage 01", "Storage/02"}[i])
		r := wire.Record{Meta: wire.Meta{Tags: wire.Tags{"supi": {"imsi-1"}}}, Blocks: []wire.Block{{ID: "b", ContentType: "text/plain", Content: []byte("x")}}}
		tag, created, err := s.Put(ctx, "r/1", r, client.Conditions{IfNoneMatch: "*"})
		if err != nil || !created {
			t.Fatalf("put: got error %v, created %t", err, created)
		}
		got, again, err := s.Get(ctx, "r/1", client.Conditions{})
		if err != nil || again != tag || string(got.Blocks[0].Content) != "x" {
			t.Errorf("get: %v %s %+v", err, again, got)
		}
		if _, _, err := s.Get(ctx, "r/1", client.Conditions{IfNoneMatch: tag}); !errors.Is(err, client.ErrNotModified) {
			t.Errorf("get of an unchanged record: got %v, want ErrNotModified", err)
		}
		must[string](t)(s.PutBlock(ctx, "r/1", wire.Block{ID: "c", ContentType: "text/plain", Encoding: "8bit", Content: []byte("y")}, client.Conditions{}))
		if b, _, err := s.Block(ctx, "r/1", "c", client.Conditions{}); err != nil || string(b.Content) != "y" || b.Encoding != "8bit" {
			t.Errorf("block: %v %+v", err, b)
		}
		if err := s.DeleteBlock(ctx, "r/1", "c", client.Conditions{}); err != nil {
			t.Error(err)
		}
		report := must[[]wire.ReportItem](t)(s.PatchMeta(ctx, "r/1", []wire.PatchItem{{Op: "add", Path: "/tags/n", Value: []byte(`["1"]`)}, {Op: "remove", Path: "/tags/none"}}, client.Conditions{}))
		if len(report) != 1 {
			t.Errorf("got report %+v", report)
		}
		if m, _, err := s.Meta(ctx, "r/1", client.Conditions{}); err != nil || len(m.Tags) != 2 {
			t.Errorf("meta: %v %+v", err, m)
		}
		f := wire.Compare(wire.Equal, "n", "1")
		if found := must[wire.SearchResult](t)(s.Search(ctx, f, "META_AND_BLOCKS", 10)); found.Count != 1 || string(found.MatchingRecords["r/1"].Blocks[0].Content) != "x" {
			t.Errorf("got search result %+v", found)
		}
		if n := must[int](t)(s.Count(ctx, wire.All())); n != 1 {
			t.Errorf("got count %d, want 1", n)
		}
		owner := wire.ClientID{NfSetID: "set1"}
		if err := s.Subscribe(ctx, "s", wire.Subscription{ClientID: &owner, CallbackReference: "http://nf.example/x"}); err != nil {
			t.Error(err)
		}
		if err := s.Unsubscribe(ctx, "s", owner); err != nil {
			t.Error(err)
		}
		if err := s.StartTimer(ctx, "t", wire.Timer{Expires: time.Now().Add(time.Hour), MetaTags: wire.Tags{"n": {"1"}}}); err != nil {
			t.Error(err)
		}
		if ids := must[[]string](t)(s.Timers(ctx, f, false)); !slices.Equal(ids, []string{"t"}) {
			t.Errorf("got timers %v, want t", ids)
		}
		if left := must[[]wire.ReportItem](t)(s.PatchTimer(ctx, "t", []wire.PatchItem{{Op: "add", Path: "/deleteAfter", Value: []byte("5")}})); left != nil {
			t.Errorf("got report %v", left)
		}
		if got := must[wire.Timer](t)(s.Timer(ctx, "t")); *got.DeleteAfter != 5 {
			t.Errorf("got timer %+v", got)
		}
		if err := s.StopTimer(ctx, "t"); err != nil {
			t.Error(err)
		}
		if ids := must[[]string](t)(s.DeleteMatching(ctx, f)); !slices.Equal(ids, []string{"r/1"}) {
			t.Errorf("deleted records %v, want r/1", ids)
		}
		if err := s.Delete(ctx, "r/1", client.Conditions{}); !client.NotFound(err) {
			t.Errorf("delete of a missing record: got %v, want not found", err)
		}
	}
}
