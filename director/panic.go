package director

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"vitrine"
	"vitrine/director/table"
)

// A Percent is a share, written 50%. 0 is off.
type Percent int

// UnmarshalText reads off, or 1% to 100%.
func (p *Percent) UnmarshalText(text []byte) error {
	if string(text) == "off" {
		*p = 0
		return nil
	}
	number, ok := strings.CutSuffix(string(text), "%")
	n, err := strconv.Atoi(number)
	if !ok || err != nil || n < 1 || n > 100 {
		return fmt.Errorf("%q: want off, or 1%% to 100%%", text)
	}
	*p = Percent(n)
	return nil
}

// panicShare returns the panic threshold of a type: if more than this share of its active
// instances is away, all of them count as up. 0: off.
func (c *Config) panicShare(typeName string) Percent {
	if t := c.Type(typeName); t != nil && t.Panic != nil {
		return *t.Panic
	}
	return c.Panic
}

// inPanic returns the types of a table in panic. A type is in panic if all of its active
// instances are away, or more than its panic share. Then the checks are probably wrong, or
// the other instances could not carry the load.
func (d *Director) inPanic(t *table.Table) map[string]bool {
	active, away := map[string]int{}, map[string]int{}
	for i := range int32(t.Len()) {
		at := t.Target(i)
		if at.State != vitrine.Active {
			continue
		}
		active[at.TypeName()]++
		if d.watch.away(at.Name) {
			away[at.TypeName()]++
		}
	}
	c, found := d.config.Load(), map[string]bool{}
	for name, n := range away {
		share := int(c.panicShare(name))
		if share > 0 && (n == active[name] || n*100 > share*active[name]) {
			found[name] = true
		}
	}
	return found
}

// panics returns the names of the types in panic, as published.
func (d *Director) panics() []string {
	if found := d.panicking.Load(); found != nil {
		return slices.Sorted(maps.Keys(*found))
	}
	return nil
}

// notePanic stores the types in panic, and logs those that enter or leave it.
func (d *Director) notePanic(now map[string]bool) {
	was := map[string]bool{}
	if old := d.panicking.Swap(&now); old != nil {
		was = *old
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if !was[name] {
			d.log.Warn("type is in panic: its instances count as up although checks fail", "type", name, "panic", int(d.config.Load().panicShare(name)))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(was)) {
		if !now[name] {
			d.log.Warn("type is no longer in panic", "type", name)
		}
	}
}
