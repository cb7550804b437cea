package e2e

import (
	"testing"
	"time"
)

// killAndStart kills the director's process and starts another from its state file.
func (d *steward) killAndStart(name, dir string) (when time.Time) {
	d.t.Helper()
	when = time.Now()
	d.kill()
	d.begin(name, dir)
	return when
}

// TestColdRestart kills a director during a transition and starts it again from its state file
// alone. It may lose only transactions whose key had just moved to the instance where they
// began, and no more of them than the director counts.
func TestColdRestart(t *testing.T) {
	t.Parallel()
	m := newMotion(t, 1, "10s")
	d := m.fleet[0]
	m.call(kinds, 30, 0)
	m.after(600)
	changing := time.Now()
	m.grow()
	m.after(300)
	before := d.status()
	if !before.InTransition {
		t.Fatal("the transition ended before the director was killed, so the test proves nothing")
	}
	killed := d.killAndStart("director-1", m.dir)
	if after := d.status(); after.Epoch != before.Epoch || after.Digest != before.Digest || !after.Restarted {
		t.Errorf("after the kill: status %+v, before %+v", after, before)
	}
	eventually(t, "nothing goes by the table before any more", func() bool { return !d.status().Restarted })
	m.after(600)
	sum := m.finish()
	unknown := d.status().Steering.Unknown
	m.ledger.close()
	amid := func(r *record) bool { return r.began.After(changing) && r.amid(killed, killed) }
	strayed := m.ledger.strayed()
	t.Logf("%d transactions; %d messages of unknown keys went by the previous table; %d transactions changed instances, %d calls failed",
		sum.transactions, unknown, len(strayed), sum.failed)
	m.report("a transaction changed instances that did not begin shortly before the kill", m.ledger.strayedBut(func(r *record) bool { return amid(r) || r.longer(m.transition) }), nil)
	if unknown == 0 || uint64(len(strayed)) > unknown || uint64(sum.failed) > unknown {
		t.Errorf("%d transactions changed instances and %d calls failed, but only %d were counted as at risk", len(strayed), sum.failed, unknown)
	}
	m.lost(sum, amid)
}
