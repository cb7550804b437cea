package decide

import "time"

// A Memory is what Decide must remember from one second to the next. The zero value
// is that of a first start. It can be written and read as JSON, so that an
// orchestrator that starts again goes on where it was. Its fields are for explain
// and for tests; only Decide changes them.
type Memory struct {
	At    time.Time         `json:"at"` // of the last View
	Types map[string]*Track `json:"types"`
}

// A Track is what is remembered of one type.
type Track struct {
	Rates  []float64       `json:"rates"`  // of the last seconds, oldest first
	Boots  []time.Duration `json:"boots"`  // of the last starts, oldest first
	Needed float64         `json:"needed"` // transactions/s that capacity was last decided for, headroom not included
}

// Decide returns what to do now, and updates the memory.
func Decide(v View, m *Memory) []Action {
	return nil
}
