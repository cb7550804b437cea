// Package param reads the parameters of the built-in generators.
package param

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"vitrine"
)

// A Setter parses and stores the value of a parameter. Its error names the allowed values.
type Setter func(string) error

// Decode passes each value to the setter of its parameter. Its errors are
// *vitrine.BadInput and name the generator and the parameter.
func Decode(generator string, given map[string]string, setters map[string]Setter) error {
	names := slices.Sorted(maps.Keys(setters))
	for _, name := range slices.Sorted(maps.Keys(given)) {
		set, ok := setters[name]
		if !ok {
			return bad(generator, fmt.Sprintf("unknown parameter %q", name), "want one of "+strings.Join(names, ", "))
		}
		if err := set(given[name]); err != nil {
			return bad(generator, fmt.Sprintf("parameter %s is %q", name, given[name]), err.Error())
		}
	}
	return nil
}

func bad(generator, found, want string) error {
	return &vitrine.BadInput{File: generator, Found: found, Want: want}
}

// A Duration is a time.Duration with a text form: 10s, 1m30s, 500ms.
type Duration time.Duration

// UnmarshalText reads the format of time.ParseDuration.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = Duration(v)
	return err
}

// MarshalText writes a text that UnmarshalText reads.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// OneOf returns a setter that accepts one of the allowed values.
func OneOf(into *string, allowed ...string) Setter {
	return func(s string) error {
		if !slices.Contains(allowed, s) {
			return fmt.Errorf("want %s", strings.Join(allowed, ", "))
		}
		*into = s
		return nil
	}
}

// YesNo returns a setter that accepts true or false.
func YesNo(into *bool) Setter {
	return func(s string) error {
		v, err := strconv.ParseBool(s)
		if err != nil {
			return fmt.Errorf("want true or false")
		}
		*into = v
		return nil
	}
}

// Whole returns a setter that accepts a whole number from low to high.
func Whole(into *int, low, high int) Setter {
	return func(s string) error {
		v, err := strconv.Atoi(s)
		if err != nil || v < low || v > high {
			return fmt.Errorf("want a whole number from %d to %d", low, high)
		}
		*into = v
		return nil
	}
}

// Time returns a setter that accepts a duration from low to an hour.
func Time(into *Duration, low time.Duration) Setter {
	return func(s string) error {
		v, err := time.ParseDuration(s)
		if err != nil || v < low || v > time.Hour {
			return fmt.Errorf("want a duration such as 10s, from %v to 1h", low)
		}
		*into = Duration(v)
		return nil
	}
}

// Address returns a setter that accepts an IP address.
func Address(into *string) Setter {
	return func(s string) error {
		if _, err := netip.ParseAddr(s); err != nil {
			return fmt.Errorf("want an IP address")
		}
		*into = s
		return nil
	}
}
