package hosttest

import "testing"

func TestMetric(t *testing.T) {
	const text = `# TYPE calls_total counter
calls_total{kind="read",of="a"} 3
calls_total{kind="read",of="b\"c"} 4
calls_total{kind="readers",of="a"} 50
# TYPE calls_total_seen gauge
calls_total_seen 600
# TYPE seconds histogram
seconds_bucket{kind="read",le="1"} 1
seconds_bucket{kind="read",le="+Inf"} 2
seconds_sum{kind="read"} 1.5
seconds_count{kind="read"} 2
`
	for _, c := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"calls_total", nil, 57},
		{"calls_total", []string{`kind="read"`}, 7},
		{"calls_total", []string{`of="a"`, `kind="read"`}, 3},
		{"calls_total", []string{`of="b\"c"`}, 4},
		{"calls_total", []string{`other="a"`}, 0},
		{"seconds_count", []string{`kind="read"`}, 2},
		{"none", nil, 0},
	} {
		if got := Metric(t, text, c.name, c.labels...); got != c.want {
			t.Errorf("%s%v is %v, want %v", c.name, c.labels, got, c.want)
		}
	}
}
