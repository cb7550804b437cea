package load

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"vitrine"
)

// The prefixes of the Trial's environment variables.
const (
	envPrefix = "VITRINE_"
	envParam  = envPrefix + "PARAM_"
)

// An option is an argument of a generator, such as --rate, and its value.
type option struct{ argument, value string }

// options returns all options of the trial except its parameters.
func (t Trial) options() []option {
	return []option{
		{"--rate", decimal(t.Rate)}, {"--duration", decimal(t.Duration)}, {"--warmup", decimal(t.Warmup)},
		{"--targets", strings.Join(t.Targets, ",")}, {"--scratch", t.Scratch}, {"--seed", strconv.FormatUint(t.Seed, 10)},
	}
}

// variable returns the environment variable of the option, such as VITRINE_RATE.
func (o option) variable() string { return envPrefix + envName(strings.TrimPrefix(o.argument, "--")) }

// Command returns the command that starts a generator for the trial. program is the executable and
// its first arguments, such as {"vitrine", "generate", "sip"}. The trial is passed both as
// arguments and in the environment, so a script may read whichever is easier.
func Command(program []string, t Trial) vitrine.Command {
	args := slices.Clone(program)
	var env []string
	for _, o := range t.options() {
		args = append(args, o.argument, o.value)
		env = append(env, o.variable()+"="+o.value)
	}
	for _, name := range slices.Sorted(maps.Keys(t.Params)) {
		args = append(args, "--param", name+"="+t.Params[name])
		env = append(env, envParam+envName(name)+"="+t.Params[name])
	}
	return vitrine.Command{Args: args, Env: env}
}

// decimal formats v without an exponent, because shells cannot read exponents.
func decimal(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// envName returns a parameter's name for the environment: in upper case, with _ for
// every character that a variable name cannot hold.
func envName(param string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, param)
}
