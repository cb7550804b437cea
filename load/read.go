package load

import (
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"

	"vitrine"
)

// The limits of a trial, one day and a billion calls. With them, a typing error fails at once.
const (
	maxSeconds = 86400
	maxCalls   = 1e9
)

// ReadTrial reads the trial from args (without the program's name). It reads options that args
// lack from environ (os.Environ()). A generator written in Go begins with ReadTrial. Its errors
// are *vitrine.BadInput.
func ReadTrial(args, environ []string) (Trial, error) {
	t := Trial{Params: map[string]string{}}
	given := map[string]string{} // option -> value
	for i := 0; i < len(args); i++ {
		name, value, joined := strings.Cut(args[i], "=")
		if !strings.HasPrefix(name, "--") || !isOption(name) {
			return t, bad(args[i], "the options are --rate, --duration, --warmup, --targets, --scratch, --seed and --param name=value")
		}
		if !joined {
			if i++; i == len(args) {
				return t, bad(name, "a value must follow")
			}
			value = args[i]
		}
		if name == "--param" {
			key, v, ok := strings.Cut(value, "=")
			if !ok || key == "" {
				return t, bad("--param "+value, "want name=value")
			}
			t.Params[key] = v
			continue
		}
		given[name] = value
	}
	readEnvironment(&t, given, environ)
	return t, t.fill(given)
}

func isOption(name string) bool {
	return name == "--param" || slices.ContainsFunc(Trial{}.options(), func(o option) bool { return o.argument == name })
}

// readEnvironment adds options and parameters that the arguments lack. A parameter's name is in
// upper case in the environment, so readEnvironment converts it to lower case.
func readEnvironment(t *Trial, given map[string]string, environ []string) {
	argued := map[string]bool{}
	for name := range t.Params {
		argued[envName(name)] = true
	}
	arguments := map[string]string{} // by variable
	for _, o := range t.options() {
		arguments[o.variable()] = o.argument
	}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if argument, ok := arguments[name]; ok {
			if _, set := given[argument]; !set {
				given[argument] = value
			}
			continue
		}
		if param, ok := strings.CutPrefix(name, envParam); ok && !argued[param] {
			t.Params[strings.ToLower(param)] = value
		}
	}
}

// fill parses the options' values and checks them.
func (t *Trial) fill(given map[string]string) error {
	var err error
	if t.Rate, err = readNumber(given, "--rate", true); err != nil {
		return err
	}
	if t.Duration, err = readNumber(given, "--duration", true); err != nil {
		return err
	}
	if t.Warmup, err = readNumber(given, "--warmup", false); err != nil {
		return err
	}
	if s := given["--seed"]; s != "" {
		if t.Seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			return bad("--seed "+s, "want a whole number from 0")
		}
	}
	t.Scratch = given["--scratch"]
	if given["--targets"] == "" {
		return bad("--targets", "missing; want address:port, or several with commas")
	}
	t.Targets = strings.Split(given["--targets"], ",")
	return t.Check()
}

// Check returns an error if the trial is not valid. Its errors are
// *vitrine.BadInput.
func (t Trial) Check() error {
	switch {
	case !(t.Rate > 0) || math.IsInf(t.Rate, 0):
		return bad("--rate "+decimal(t.Rate), "want a number above 0")
	case !(t.Duration > 0) || t.Duration > maxSeconds:
		return bad("--duration "+decimal(t.Duration), fmt.Sprintf("want seconds, above 0 and at most %d", maxSeconds))
	case !(t.Warmup >= 0) || t.Warmup > maxSeconds:
		return bad("--warmup "+decimal(t.Warmup), fmt.Sprintf("want seconds, from 0 to %d", maxSeconds))
	case t.Rate*(t.Duration+t.Warmup) > maxCalls:
		return bad("--rate "+decimal(t.Rate), fmt.Sprintf("want at most %.0e calls in one trial", maxCalls))
	case len(t.Targets) == 0:
		return bad("--targets", "missing; want address:port, or several with commas")
	}
	for _, target := range t.Targets {
		host, port, err := net.SplitHostPort(target)
		n, perr := strconv.ParseUint(port, 10, 16)
		if err != nil || host == "" || perr != nil || n == 0 {
			return bad("--targets "+target, "want address:port, or several with commas")
		}
	}
	return nil
}

func readNumber(given map[string]string, option string, required bool) (float64, error) {
	s := given[option]
	if s == "" && !required {
		return 0, nil
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(v) {
		return 0, bad(strings.TrimSpace(option+" "+s), "want a number")
	}
	return v, nil
}

func bad(found, want string) error {
	return &vitrine.BadInput{File: "generator", Found: found, Want: want}
}
