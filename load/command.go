package load

import (
	"slices"
	"strconv"
	"strings"

	"vitrine"
)

// The environment variables of the Trial.
const (
	envRate     = "VITRINE_RATE"
	envDuration = "VITRINE_DURATION"
	envWarmup   = "VITRINE_WARMUP"
	envTargets  = "VITRINE_TARGETS"
	envScratch  = "VITRINE_SCRATCH"
	envSeed     = "VITRINE_SEED"
	envParam    = "VITRINE_PARAM_"
)

// Command returns the command that starts a generator for the trial. program is the executable and
// its first arguments, such as {"vitrine", "generate", "sip"}. The trial is passed both as
// arguments and in the environment, so a script may read whichever is easier.
func Command(program []string, t Trial) vitrine.Command {
	rate, duration, warmup := decimal(t.Rate), decimal(t.Duration), decimal(t.Warmup)
	targets := strings.Join(t.Targets, ",")
	seed := strconv.FormatUint(t.Seed, 10)

	args := append(slices.Clone(program),
		"--rate", rate, "--duration", duration, "--warmup", warmup,
		"--targets", targets, "--scratch", t.Scratch, "--seed", seed)
	env := []string{
		envRate + "=" + rate, envDuration + "=" + duration, envWarmup + "=" + warmup,
		envTargets + "=" + targets, envScratch + "=" + t.Scratch, envSeed + "=" + seed,
	}
	for _, name := range sortedKeys(t.Params) {
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

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
