package forwarder

import "testing"

func BenchmarkRewrite(b *testing.B) {
	a := addresses{own: [6]byte{2, 0, 0, 0, 0, 1}}
	f := frame(a.own, a.own, 64, 1)
	for b.Loop() {
		if a.classify(f) != forwarded {
			b.Fatal("the frame was not forwarded")
		}
		copy(f[macSize:], a.source[:])
	}
}

// BenchmarkPacket sends 64-byte frames as fast as one socket can. It reports the
// CPU time of the forwarder's thread per frame.
func BenchmarkPacket(b *testing.B) {
	before, at := namespace(b), namespace(b)
	pair(b, before, "far", at, "in", 1500)
	from, own := openPort(b, before, "far"), openPort(b, at, "in").addr
	f := start(b, at, "--in", "in", "--next-mac", nextHop.String())
	probe := frame(own, from.addr, 64, 1)
	for b.Loop() {
		from.send(probe)
	}
	r := f.stop()
	b.ReportMetric(r.CPU*1e9/float64(r.Forwarded), "cpu-ns/frame")
	b.ReportMetric(float64(r.Lost)/float64(r.Received+r.Lost), "lost")
}
