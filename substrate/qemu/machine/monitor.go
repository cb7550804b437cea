package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A Monitor is a client of QEMU's machine protocol (QMP). The module proxy does not offer
// the only Go library for it, and vitrine needs little of it.
type Monitor struct {
	mu      sync.Mutex // one command at a time
	conn    net.Conn
	decoder *json.Decoder
}

// A reply is a message from QEMU: an answer, or an event, which the Monitor ignores.
type reply struct {
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Class string `json:"class"`
		Desc  string `json:"desc"`
	} `json:"error"`
	Greeting json.RawMessage `json:"QMP"`
}

func newMonitor(ctx context.Context, conn net.Conn) (*Monitor, error) {
	m := &Monitor{conn: conn, decoder: json.NewDecoder(conn)}
	defer m.bound(ctx)()
	var greeting reply
	if err := m.decoder.Decode(&greeting); err != nil || greeting.Greeting == nil {
		return nil, errors.Join(errors.New("QEMU's monitor sent no greeting"), err)
	}
	return m, m.run("qmp_capabilities", nil, nil)
}

// bound makes the connection fail when the context ends. The caller must call the
// returned function when done.
func (m *Monitor) bound(ctx context.Context) func() {
	_ = m.conn.SetDeadline(time.Time{})
	stop := context.AfterFunc(ctx, func() { _ = m.conn.SetDeadline(time.Unix(1, 0)) })
	return func() { stop() }
}

// Run runs a command with its arguments, if any, and decodes its return value
// into result, if not nil.
func (m *Monitor) Run(ctx context.Context, command string, arguments map[string]any, result any) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	defer m.bound(ctx)()
	return m.run(command, arguments, result)
}

func (m *Monitor) run(command string, arguments map[string]any, result any) error {
	request := map[string]any{"execute": command}
	if len(arguments) > 0 {
		request["arguments"] = arguments
	}
	err := json.NewEncoder(m.conn).Encode(request)
	for err == nil {
		var r reply
		if err = m.decoder.Decode(&r); err != nil {
			break
		}
		if r.Error != nil {
			return fmt.Errorf("QEMU's monitor refuses %s: %s", command, r.Error.Desc)
		}
		if r.Return == nil {
			continue
		}
		if result == nil {
			return nil
		}
		err = json.Unmarshal(r.Return, result)
		if err == nil {
			return nil
		}
	}
	return fmt.Errorf("QEMU's monitor, %s: %w", command, err)
}

// bind binds each virtual processor's thread to its own CPU.
func (m *Machine) bind(ctx context.Context, cpus []int) error {
	var vcpus []struct {
		Index  int `json:"cpu-index"`
		Thread int `json:"thread-id"`
	}
	if err := m.monitor.Run(ctx, "query-cpus-fast", nil, &vcpus); err != nil {
		return err
	}
	for _, v := range vcpus {
		if v.Index >= len(cpus) {
			return fmt.Errorf("binding virtual processor %d: there are only %d CPUs", v.Index, len(cpus))
		}
		var set unix.CPUSet
		set.Set(cpus[v.Index])
		if err := unix.SchedSetaffinity(v.Thread, &set); err != nil {
			return fmt.Errorf("binding virtual processor %d to CPU %d: %w", v.Index, cpus[v.Index], err)
		}
	}
	return nil
}
