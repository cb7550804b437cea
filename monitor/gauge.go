package monitor

import (
	"sync"
	"time"

	"vitrine"
)

// A Gauge reads the use of instances now and then and keeps only the last reading. It is for
// services that run for years. Its methods may be called from any goroutine.
type Gauge struct {
	mu        sync.Mutex
	began     time.Time
	instances []*subject
	buf       []byte
}

// NewGauge opens the files and processes of the vantages. The instances must be running. The
// caller must call Close when the instances end, before the kernel can reuse their PIDs.
func NewGauge(vantages []vitrine.Vantage) *Gauge {
	g := &Gauge{began: time.Now(), buf: make([]byte, 1<<16)}
	for i, v := range vantages {
		s := openInstance(v, "/proc", 1, i)
		s.read(g.buf)
		s.lastAt, s.last = 0, s.total
		g.instances = append(g.instances, s)
	}
	return g
}

// Read returns the use of each instance since the last Read: its CPUs on average, and its
// memory now. Network and throttling are left out.
func (g *Gauge) Read() map[string]vitrine.Use {
	g.mu.Lock()
	defer g.mu.Unlock()
	uses := make(map[string]vitrine.Use, len(g.instances))
	for _, s := range g.instances {
		s.at = time.Since(g.began)
		s.read(g.buf)
		v := s.use.vantage
		use := vitrine.Use{Component: v.Component, VCPUs: v.VCPUs, MemoryLimit: v.Memory, Missing: map[string]string{}}
		if mean := (s.total[cpu] - s.last[cpu]) / float64(s.at-s.lastAt); mean >= 0 {
			use.CPU = &mean
		} else { // NaN, or a counter that was reset
			use.Missing[names[cpu]] = s.why[cpu]
		}
		if now := s.total[memory]; now >= 0 {
			use.Memory = &now
		} else {
			use.Missing[names[memory]] = s.why[memory]
		}
		s.lastAt, s.last = s.at, s.total
		uses[v.Instance] = use
	}
	return uses
}

// Close closes all files. Afterwards, all use is missing.
func (g *Gauge) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.instances {
		s.end("the gauge is closed")
	}
}
