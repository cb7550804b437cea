package main

import "testing"

func TestParseWrk(t *testing.T) {
	const good = `Running 5s test @ http://127.0.0.1:8070
  1 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.52ms    1.02ms  21.09ms   88.91%
  Latency Distribution
     50%    1.24ms
     99%    5.37ms
  218000 requests in 5.00s, 51.00MB read
Requests/sec:  43600.50
Transfer/sec:     10.20MB
`
	if got, err := parseWrk(good); err != nil || got != (storeResult{43600.5, 5.37}) {
		t.Errorf("read %+v, %v", got, err)
	}
	for _, bad := range []string{"", good + "  Non-2xx or 3xx responses: 12\n", good + "  Socket errors: connect 0, read 1, write 0, timeout 0\n"} {
		if got, err := parseWrk(bad); err == nil {
			t.Errorf("%q is %+v", bad, got)
		}
	}
}

func TestParseRedisBenchmark(t *testing.T) {
	const good = `"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"
"GET","104166.66","0.350","0.112","0.343","0.431","0.599","1.207"
`
	if got, err := parseRedisBenchmark(good); err != nil || got != (storeResult{104166.66, 0.599}) {
		t.Errorf("read %+v, %v", got, err)
	}
	for _, bad := range []string{"", "a,b\n1,2\n", `"test","rps"` + "\n" + `"GET","x"` + "\n"} {
		if got, err := parseRedisBenchmark(bad); err == nil {
			t.Errorf("%q is %+v", bad, got)
		}
	}
}
