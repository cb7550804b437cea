package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// putCommand is the first argument of this program when it runs as etcd's
// clients.
const putCommand = "put"

const (
	etcdPort        = 2379
	etcdPeerPort    = 2380
	etcdConnections = 8 // shared by the clients, because one connection per client is slower
)

// etcd is the peer for durable writes: one member, which syncs its log before it answers.
func etcd(version string) testedStore {
	at := func(port int) string { return fmt.Sprintf("http://127.0.0.1:%d", port) }
	return testedStore{version, etcdPort, func(ctx context.Context, dir string) (*exec.Cmd, error) {
		return exec.CommandContext(ctx, "etcd", "--data-dir", dir, "--log-level", "error",
			"--listen-client-urls", at(etcdPort), "--advertise-client-urls", at(etcdPort),
			"--listen-peer-urls", at(etcdPeerPort), "--initial-advertise-peer-urls", at(etcdPeerPort),
			"--initial-cluster", "default="+at(etcdPeerPort), "--quota-backend-bytes", strconv.Itoa(8<<30)), nil
	}, func(ctx context.Context, s *stage) (got storeResult, err error) {
		out, err := s.output(exec.CommandContext(ctx, self(), putCommand, at(etcdPort)))
		if err != nil {
			return got, err
		}
		err = json.Unmarshal([]byte(out), &[]*float64{&got.rate, &got.p99})
		return got, err
	}}
}

// put runs etcd's clients. Each of them writes one key after the other. put prints the rate in
// operations per second and the 99th percentile in ms.
func put(ctx context.Context, args []string, out io.Writer) error {
	if len(args) != 1 {
		return errors.New("want etcd's address")
	}
	conns := make([]*clientv3.Client, etcdConnections)
	for i := range conns {
		c, err := clientv3.New(clientv3.Config{Endpoints: args, DialTimeout: startTimeout, Context: ctx})
		if err != nil {
			return err
		}
		defer c.Close()
		conns[i] = c
	}
	value := strings.Repeat("v", storeValue)
	each, failures := make([]*hdrhistogram.Histogram, storeClients), make([]error, storeClients)
	start := time.Now()
	var clients sync.WaitGroup
	for i := range storeClients {
		each[i] = hdrhistogram.New(1, int64(time.Minute/time.Microsecond), 3)
		clients.Go(func() {
			for n := i; time.Since(start) < storeTrial && failures[i] == nil; n += storeClients {
				before := time.Now()
				_, failures[i] = conns[i%etcdConnections].Put(ctx, "k"+strconv.Itoa(n*7919%storeKeys), value)
				failures[i] = errors.Join(failures[i], each[i].RecordValue(time.Since(before).Microseconds()))
			}
		})
	}
	clients.Wait()
	took := time.Since(start)
	for _, h := range each[1:] {
		each[0].Merge(h)
	}
	if err := errors.Join(failures...); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode([]float64{float64(each[0].TotalCount()) / took.Seconds(), float64(each[0].ValueAtQuantile(99)) / 1e3})
}
