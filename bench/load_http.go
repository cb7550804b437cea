package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"

	"vitrine/load"
)

// The trial of the built-in generator, and the server's port.
const (
	httpRate        = 8000 // calls per second; wrk has no rate and sends as fast as it can
	httpDuration    = 5    // seconds
	httpConnections = 64   // of both generators
	httpPort        = 28090
)

// loadHTTP compares how many requests the built-in generator and wrk make per second of CPU time
// of the whole generator process. Each run has a fresh nginx. Both generators use the same core,
// and nginx has another. The built-in generator keeps to a schedule and prints the report of
// package load. wrk is a closed loop and always saturates the server. So wrk finds many responses
// at each poll, which is the cheapest case.
func loadHTTP(ctx context.Context, s *stage, progress io.Writer) ([]Row, error) {
	if err := programs("wrk", "nginx"); err != nil {
		return nil, err
	}
	return compareSides(ctx, minRounds, "load/http", "requests/CPU-s", fmt.Sprintf("wrk, %d connections, one thread", httpConnections), ">= 0.5",
		s.againstNginx(s.builtInRequests), s.againstNginx(s.wrkRequests), progress)
}

// againstNginx returns a side that measures against a fresh nginx.
func (s *stage) againstNginx(measure side) side {
	return func(ctx context.Context) (got float64, err error) {
		err = s.serving(ctx, "nginx", httpPort, nginx, func() error {
			got, err = measure(ctx)
			return err
		})
		return got, err
	}
}

// nginx writes the files of an nginx to the folder and returns its command.
func nginx(ctx context.Context, dir string) (*exec.Cmd, error) {
	config := fmt.Sprintf(`daemon off; master_process off; pid %[1]s/pid; error_log stderr;
events { worker_connections 1024; }
http { access_log off; keepalive_requests 1000000000; open_file_cache max=16; server { listen 127.0.0.1:%[2]d; root %[1]s; } }
`, dir, httpPort)
	err := errors.Join(os.WriteFile(filepath.Join(dir, "nginx.conf"), []byte(config), 0o644),
		os.WriteFile(filepath.Join(dir, "index.html"), bytes.Repeat([]byte("x"), 1024), 0o644))
	return exec.CommandContext(ctx, "nginx", "-p", dir, "-c", "nginx.conf"), err
}

// builtInRequests returns the built-in generator's requests per second of CPU
// time.
func (s *stage) builtInRequests(ctx context.Context) (float64, error) {
	report, cpu, err := runBuiltIn(ctx, s.startLoad, "http", load.Trial{
		Rate: httpRate, Duration: httpDuration, Targets: []string{fmt.Sprintf("127.0.0.1:%d", httpPort)},
		Params: map[string]string{"path": "/index.html", "connections": strconv.Itoa(httpConnections)},
	})
	if err == nil && report.Succeeded < report.Scheduled*99/100 {
		err = fmt.Errorf("the built-in generator made %d of %d requests: %v", report.Succeeded, report.Scheduled, report.Failed)
	}
	return float64(report.Succeeded) / cpu, err
}

var wrkRequests = regexp.MustCompile(`(\d+) requests in `)

// wrkRequests returns wrk's requests per second of CPU time.
func (s *stage) wrkRequests(ctx context.Context) (float64, error) {
	cmd := exec.CommandContext(ctx, "wrk", "-t", "1", "-c", strconv.Itoa(httpConnections), "-d", fmt.Sprintf("%ds", httpDuration),
		fmt.Sprintf("http://127.0.0.1:%d/index.html", httpPort))
	out, err := s.output(cmd)
	if err != nil {
		return 0, err
	}
	made := wrkRequests.FindStringSubmatch(out)
	if amiss := wrkAmiss.FindString(out); amiss != "" || made == nil {
		return 0, fmt.Errorf("wrk: some requests failed, or their number is missing: %s\n%s", amiss, out)
	}
	requests, err := strconv.ParseFloat(made[1], 64)
	return requests / cpuSeconds(cmd), err
}
