package http

import (
	"fmt"
	"math"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/load"
	"vitrine/load/param"
)

// name is the generator's name in errors.
const name = "generator http"

// Params are the generator's parameters.
type Params struct {
	Path        string         `json:"path" yaml:"path" jsonschema:"default=/,description=path to request"`
	Host        string         `json:"host" yaml:"host" jsonschema:"description=the field Host; the default is the target's address and port"`
	Arrivals    string         `json:"arrivals" yaml:"arrivals" jsonschema:"enum=paced,enum=poisson,default=paced,description=calls arrive evenly or at random"`
	Timeout     param.Duration `json:"timeout" yaml:"timeout" jsonschema:"default=10s,description=a call fails if its response is not complete within this time; a wait for a connection counts"`
	Connections int            `json:"connections" yaml:"connections" jsonschema:"default=0,description=most open connections to all targets together; 0: as many as the rate needs and the system allows"`
	Tick        param.Duration `json:"tick" yaml:"tick" jsonschema:"default=1ms,description=interval at which answers are handled; adds up to this time to the latency"`
}

// Defaults returns the default parameters.
func Defaults() Params {
	return Params{Path: "/", Arrivals: load.Paced, Timeout: param.Duration(10 * time.Second), Tick: param.Duration(time.Millisecond)}
}

// Decode parses the parameters of a trial. Missing parameters keep their defaults.
// Its errors are *vitrine.BadInput and name the parameter.
func Decode(given map[string]string) (Params, error) {
	p := Defaults()
	return p, param.Decode(name, given, map[string]param.Setter{
		"path": path(&p.Path), "host": host(&p.Host),
		"arrivals": param.OneOf(&p.Arrivals, load.Paced, load.Poisson),
		"timeout":  param.Time(&p.Timeout, time.Millisecond), "tick": param.Time(&p.Tick, time.Microsecond),
		"connections": param.Whole(&p.Connections, 0, 1<<20),
	})
}

// visible reports whether all characters of s may stand in a request unescaped.
func visible(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

func path(into *string) param.Setter {
	return func(s string) error {
		if !strings.HasPrefix(s, "/") || !visible(s) || strings.Contains(s, "#") || len(s) > 4096 {
			return fmt.Errorf("want a path that begins with /, of at most 4096 visible ASCII characters, with others as %%XX")
		}
		*into = s
		return nil
	}
}

func host(into *string) param.Setter {
	return func(s string) error {
		if s == "" || !visible(s) || strings.ContainsAny(s, "/?#@") || len(s) > 256 {
			return fmt.Errorf("want a host name, with :port if need be")
		}
		*into = s
		return nil
	}
}

// mostConnections limits the connections of one target. The kernel's default range of local ports
// (ip_local_port_range) has 28,232 ports. otherFiles is the number of file descriptors reserved
// for other purposes.
const (
	mostConnections = 20_000
	otherFiles      = 64
)

// limit returns the largest number of connections to each target.
func (p Params) limit(t load.Trial) (int, error) {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return 0, fmt.Errorf("read the limit of open files: %w", err)
	}
	targets := len(t.Targets)
	most := min(mostConnections*targets, int(min(files.Cur, 1<<20))-otherFiles)
	if most < targets {
		return 0, fmt.Errorf("the process may open %d files: raise RLIMIT_NOFILE", files.Cur)
	}
	if p.Connections == 0 {
		open := t.Rate * time.Duration(p.Timeout).Seconds() // open calls if no call is answered
		need := int(min(math.Ceil(open+5*math.Sqrt(open))+1, float64(most)))
		return min((need+targets-1)/targets, most/targets), nil
	}
	if p.Connections < targets || p.Connections > most {
		return 0, &vitrine.BadInput{
			File: name, Found: fmt.Sprintf("parameter connections is %d", p.Connections),
			Want: fmt.Sprintf("from %d (one for each target) to %d here: RLIMIT_NOFILE is %d, and a target takes %d", targets, most, files.Cur, mostConnections),
		}
	}
	return p.Connections / targets, nil // rounded down, because connections limits their sum
}
