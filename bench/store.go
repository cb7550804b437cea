package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"vitrine/internal/netns"
	"vitrine/store/kv"
)

// The load on the stores: values of storeValue bytes, storeKeys keys.
const (
	storeClients = 64
	storeKeys    = 100_000
	storeValue   = 256
	storeBatch   = 50 // writes per request; the store accepts up to 64
	storeTrial   = 5 * time.Second
	redisReads   = 500_000 // reads of one trial of redis-benchmark
)

//go:embed wrk/keys.lua
var keysScript string

// A storeResult is the result of one trial of a store.
type storeResult struct {
	rate float64 // operations a second
	p99  float64 // ms
}

// A testedStore is a store under test. command returns the command of a server with
// no data; measure drives the running server.
type testedStore struct {
	name    string
	port    int
	command func(ctx context.Context, dir string) (*exec.Cmd, error)
	measure func(ctx context.Context, s *stage) (storeResult, error)
}

// trial runs one round of a store.
func (s *stage) trial(ctx context.Context, k testedStore) (got storeResult, err error) {
	err = s.serving(ctx, k.name, k.port, k.command, func() error {
		got, err = k.measure(ctx, s)
		return err
	})
	return got, err
}

// serving runs a fresh server and calls use once the server's port accepts connections. The server has a
// new folder on the stage's disk.
func (s *stage) serving(ctx context.Context, name string, port int, command func(ctx context.Context, dir string) (*exec.Cmd, error), use func() error) (err error) {
	dir, err := os.MkdirTemp(s.dir, "server-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	server := device{name: name, command: func(ctx context.Context, _ *stage) (*exec.Cmd, error) { return command(ctx, dir) }}
	return s.with(ctx, server, func() error {
		if err := s.awaitPort(ctx, port); err != nil {
			return err
		}
		return use()
	})
}

// awaitPort waits until the TCP port in the namespace accepts connections.
func (s *stage) awaitPort(ctx context.Context, port int) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return netns.Do(s.netns, func() error { return awaitTCP(ctx, net.JoinHostPort("127.0.0.1", strconv.Itoa(port))) })
}

// storeRow compares two stores. The row also names their 99th percentiles.
func (s *stage) storeRow(ctx context.Context, name, unit, aim string, ours, theirs testedStore, progress io.Writer) (Row, error) {
	var late [2][]float64
	sides := make([]side, 2)
	for i, k := range []testedStore{ours, theirs} {
		sides[i] = func(ctx context.Context) (float64, error) {
			got, err := s.trial(ctx, k)
			late[i] = append(late[i], got.p99)
			return got.rate, err
		}
	}
	rates, err := runRounds(ctx, minRounds, sides, progress)
	if err != nil {
		return Row{}, err
	}
	against := fmt.Sprintf("%s; 99th percentile %.3g ms, theirs %.3g ms", theirs.name, median(late[0]), median(late[1]))
	return Pairs{rates[0], rates[1]}.row(name, unit, against, aim)
}

// storeWrites compares durable writes per second: ours over REST, and those of etcd over its own
// protocol.
func storeWrites(ctx context.Context, s *stage, progress io.Writer) (rows []Row, err error) {
	if err := programs("wrk", "etcd"); err != nil {
		return nil, err
	}
	version, err := firstLine(ctx, "etcd", "--version")
	if err != nil {
		return nil, err
	}
	row, err := s.storeRow(ctx, "store/writes", "durable writes/s", ">= 3", s.ourStore(putOverREST), etcd(version), progress)
	return []Row{row}, err
}

// storeReads compares reads per second: ours over REST, and those of redis by redis-benchmark.
func storeReads(ctx context.Context, s *stage, progress io.Writer) (rows []Row, err error) {
	if err := programs("wrk", "redis-server", "redis-benchmark"); err != nil {
		return nil, err
	}
	version, err := firstLine(ctx, "redis-server", "--version")
	if err != nil {
		return nil, err
	}
	row, err := s.storeRow(ctx, "store/reads", "reads/s", ">= 0.3", s.ourStore(getOverREST), redis(version), progress)
	return []Row{row}, err
}

const storePort = 8070

// ourStore is the product with its default engine, which syncs a write before
// it answers.
func (s *stage) ourStore(measure func(context.Context, *stage) (storeResult, error)) testedStore {
	return testedStore{"vitrine store", storePort, func(ctx context.Context, dir string) (*exec.Cmd, error) {
		program, err := product(ctx, s.dir)
		return exec.CommandContext(ctx, program, "store", "run", "--listen", fmt.Sprintf("127.0.0.1:%d", storePort), "--dir", filepath.Join(dir, "data")), err
	}, measure}
}

func putOverREST(ctx context.Context, s *stage) (storeResult, error) {
	return s.wrk(ctx, "PUT", storeTrial)
}

// getOverREST writes all keys and then measures reads.
func getOverREST(ctx context.Context, s *stage) (storeResult, error) {
	if err := s.fill(ctx); err != nil {
		return storeResult{}, err
	}
	return s.wrk(ctx, "GET", storeTrial)
}

// fill writes all keys, in batches.
func (s *stage) fill(ctx context.Context) error {
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		err = netns.Do(s.netns, func() error {
			var d net.Dialer
			conn, err = d.DialContext(ctx, network, address)
			return err
		})
		return conn, err
	}}
	defer transport.CloseIdleConnections()
	to := &http.Client{Transport: transport}
	value := bytes.Repeat([]byte("v"), storeValue)
	for from := 0; from < storeKeys; from += storeBatch {
		var b kv.Batch
		for i := range storeBatch {
			b.Ops = append(b.Ops, kv.BatchOp{Op: "put", Key: "k" + strconv.Itoa(from+i), Value: value})
		}
		if err := postBatch(ctx, to, b); err != nil {
			return fmt.Errorf("fill the store: %w", err)
		}
	}
	return nil
}

func postBatch(ctx context.Context, to *http.Client, b kv.Batch) error {
	body, err := json.Marshal(b)
	if err != nil {
		return err
	}
	url := fmt.Sprintf("http://127.0.0.1:%d%s", storePort, kv.Root)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := to.Do(request)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusOK {
		err = errors.Join(err, fmt.Errorf("%s: %s", response.Status, text))
	}
	return errors.Join(err, response.Body.Close())
}

// wrk drives the REST API with wrk, with one request in flight per client.
func (s *stage) wrk(ctx context.Context, method string, lasting time.Duration) (storeResult, error) {
	script := filepath.Join(s.dir, "keys.lua")
	if err := os.WriteFile(script, []byte(keysScript), 0o644); err != nil {
		return storeResult{}, err
	}
	out, err := s.output(exec.CommandContext(ctx, "wrk", "-t", "1", "-c", strconv.Itoa(storeClients), "-d", fmt.Sprintf("%.0fs", lasting.Seconds()),
		"--latency", "-s", script, fmt.Sprintf("http://127.0.0.1:%d", storePort), "--", method, strconv.Itoa(storeKeys), strconv.Itoa(storeValue)))
	if err != nil {
		return storeResult{}, err
	}
	return parseWrk(out)
}

// output runs a load generator to its end, on its core, and returns its output.
func (s *stage) output(cmd *exec.Cmd) (string, error) { return finish(cmd, s.startLoad) }

var (
	wrkRate  = regexp.MustCompile(`Requests/sec:\s+([0-9.]+)`)
	wrkP99   = regexp.MustCompile(`99%\s+([0-9.]+)(us|ms|s|m)\b`)
	wrkAmiss = regexp.MustCompile(`(?m)^\s*(Non-2xx or 3xx responses|Socket errors):.*$`)
)

// parseWrk parses wrk's output. Failed requests are an error.
func parseWrk(out string) (got storeResult, err error) {
	rate, late := wrkRate.FindStringSubmatch(out), wrkP99.FindStringSubmatch(out)
	if amiss := wrkAmiss.FindString(out); amiss != "" || rate == nil || late == nil {
		return got, fmt.Errorf("wrk: some requests failed, or figures are missing: %s\n%s", strings.TrimSpace(amiss), out)
	}
	if got.rate, err = strconv.ParseFloat(rate[1], 64); err != nil {
		return got, err
	}
	took, err := time.ParseDuration(late[1] + late[2])
	got.p99 = took.Seconds() * 1e3
	return got, err
}

const redisPort = 6379

// redis is the peer for reads. It works entirely in memory.
func redis(version string) testedStore {
	port := strconv.Itoa(redisPort)
	return testedStore{version + ", redis-benchmark -t get, no pipelining", redisPort, func(ctx context.Context, dir string) (*exec.Cmd, error) {
		return exec.CommandContext(ctx, "redis-server", "--port", port, "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "no"), nil
	}, func(ctx context.Context, s *stage) (got storeResult, err error) {
		for _, test := range []string{"set", "get"} {
			out, err := s.output(exec.CommandContext(ctx, "redis-benchmark", "-p", port, "-t", test, "-c", strconv.Itoa(storeClients),
				"-n", strconv.Itoa(redisReads), "-r", strconv.Itoa(storeKeys), "-d", strconv.Itoa(storeValue), "--csv"))
			if err != nil {
				return got, err
			}
			if got, err = parseRedisBenchmark(out); err != nil {
				return got, err
			}
		}
		return got, nil
	}}
}

// parseRedisBenchmark parses the CSV of one test: a header and a line.
func parseRedisBenchmark(out string) (got storeResult, err error) {
	lines, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	if err != nil || len(lines) != 2 {
		return got, fmt.Errorf("redis-benchmark: want two lines of CSV: %w\n%s", err, out)
	}
	for i, name := range lines[0] {
		switch name {
		case "rps":
			got.rate, err = strconv.ParseFloat(lines[1][i], 64)
		case "p99_latency_ms":
			got.p99, err = strconv.ParseFloat(lines[1][i], 64)
		}
		if err != nil {
			return got, fmt.Errorf("redis-benchmark: %w\n%s", err, out)
		}
	}
	if got.rate == 0 {
		return got, fmt.Errorf("redis-benchmark printed no rate:\n%s", out)
	}
	return got, nil
}
