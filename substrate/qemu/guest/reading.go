package guest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/procfs"
)

// read sends the machine's counters every ReadingInterval until ctx ends.
func (a *agent) read(ctx context.Context) error {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return err
	}
	tick := time.NewTicker(ReadingInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		r, err := takeReading(proc)
		if err != nil {
			return err
		}
		if err := a.out.Value(KindUse, 0, r); err != nil {
			return err
		}
	}
}

func takeReading(proc procfs.FS) (Reading, error) {
	stat, err := proc.Stat()
	if err != nil {
		return Reading{}, fmt.Errorf("reading the use of processors: %w", err)
	}
	memory, err := proc.Meminfo()
	if err == nil && (memory.MemTotal == nil || memory.MemAvailable == nil) {
		err = errors.New("/proc/meminfo has no MemTotal or no MemAvailable")
	}
	if err != nil {
		return Reading{}, fmt.Errorf("reading the use of memory: %w", err)
	}
	devices, err := proc.NetDev()
	if err != nil {
		return Reading{}, fmt.Errorf("reading the use of the network: %w", err)
	}
	t := stat.CPUTotal
	r := Reading{
		CPU:    t.User + t.Nice + t.System + t.IRQ + t.SoftIRQ, // user time includes guest time (proc(5))
		Steal:  t.Steal,
		Memory: (*memory.MemTotal - *memory.MemAvailable) << 10,
	}
	for _, d := range devices {
		if d.Name != "lo" {
			r.Rx += d.RxBytes
			r.Tx += d.TxBytes
		}
	}
	return r, nil
}
