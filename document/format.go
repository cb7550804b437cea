package document

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"time"

	validator "github.com/santhosh-tekuri/jsonschema/v6"
)

// A Format is a named text format in a file. A schema contains the name and, for
// editors, the pattern. Decode checks both Pattern and Parse.
type Format struct {
	Name    string
	Pattern string             // a regular expression
	Want    string             // the hint in error messages
	Parse   func(string) error // nil: the pattern is sufficient
}

// The formats of netip.Prefix and netip.AddrPort.
const (
	network     = "network"
	addressPort = "address-port"
)

// NameWant is the hint for a text that does not have the format "name".
const NameWant = "want lower-case letters, digits and dashes, a letter first, at most 32"

var namePattern = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)

// IsName reports whether a text has the format "name".
func IsName(text string) bool { return namePattern.MatchString(text) }

// Formats returns the formats that every schema may use. JSON Schema defines its own
// "duration" (ISO 8601), so the names here differ.
func Formats() []Format {
	const duration = `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`
	return []Format{
		{"name", namePattern.String(), NameWant, nil},
		{"whole-duration", duration, "want a number with ms, s, m or h, such as 500ms", func(s string) error {
			_, err := parseDuration(s)
			return err
		}},
		{"positive-duration", duration, "want a number above 0 with ms, s, m or h, such as 3s", func(s string) error {
			if d, err := parseDuration(s); err != nil || d <= 0 {
				return errors.Join(err, errors.New("not above 0"))
			}
			return nil
		}},
		{"percent", `^(off|100%|[1-9][0-9]?%)$`, `want "off", or a share from 1% to 100%`, nil},
		{"byte-size", sizePattern.String(), `want bytes such as "256MiB" or "1.5GB", at most 1024 TiB`, func(s string) error {
			_, err := ParseSize(s)
			return err
		}},
		{"cpu-list", `^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$`, `want CPU numbers such as "0-1,3"`, func(s string) error {
			_, err := ParseCPUs(s)
			return err
		}},
		{network, `^[0-9A-Fa-f.:]+/[0-9]{1,3}$`, "want a network such as 10.3.0.0/16", func(s string) error {
			_, err := netip.ParsePrefix(s)
			return err
		}},
		{addressPort, `^([0-9.]+|\[[^\]]+\]):[0-9]{1,5}$`, "want an IP address and a port, such as 127.0.0.1:5061 or [::1]:5061", func(s string) error {
			_, err := netip.ParseAddrPort(s)
			return err
		}},
	}
}

// maxDuration is the longest duration accepted in a file; longer ones are typing
// errors.
const maxDuration = 30 * 24 * time.Hour

func parseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err == nil && (d < 0 || d > maxDuration) {
		err = fmt.Errorf("outside 0 to %s", maxDuration)
	}
	return d, err
}

// validator converts the format for the schema validator. It accepts values that are
// not text, because the schema's type refuses them.
func (f Format) validator() *validator.Format {
	pattern := regexp.MustCompile(f.Pattern)
	return &validator.Format{Name: f.Name, Validate: func(v any) error {
		s, ok := v.(string)
		if ok && (!pattern.MatchString(s) || f.Parse != nil && f.Parse(s) != nil) {
			return errors.New(f.Want)
		}
		return nil
	}}
}
