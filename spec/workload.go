package spec

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/invopop/jsonschema"

	"vitrine"
	"vitrine/document"
)

// A Workload describes the load on the function: its generator, rates and
// durations (NFV-VITAL, section III, "VNF Workload Generator").
type Workload struct {
	document.File `yaml:"-"`

	Generator  string        `yaml:"generator" jsonschema:"required,minLength=1"`                                       // Built-in generator, or the path of an executable, relative to the file's folder.
	Parameters document.Node `yaml:"parameters"`                                                                        // Parameters of the generator; a script gets them as text.
	Unit       string        `yaml:"unit" jsonschema:"format=unit,default=calls/s"`                                     // Unit of rates.
	Range      Range         `yaml:"range" jsonschema:"required"`                                                       // Lowest and highest offered rate.
	Increase   float64       `yaml:"increase" jsonschema:"exclusiveMinimum=0"`                                          // Search ramp: step between rates. Search bisect: final resolution, by default 2%.
	Duration   time.Duration `yaml:"duration" jsonschema:"required,format=positive-duration"`                           // Length of a trial's window, in which calls count. Search mlr also uses shorter windows, adaptive up to 16 times longer ones.
	Repeat     int           `yaml:"repeat" jsonschema:"minimum=1,maximum=1000,default=1"`                              // Number of fresh deployments per size; for search adaptive the minimum. Their differences determine the interval of a capacity. With 1, the interval of search ramp or bisect claims no confidence.
	Warmup     time.Duration `yaml:"warmup" jsonschema:"format=whole-duration,default=0s"`                              // Time of load before the window; calls in it do not count.
	Settle     time.Duration `yaml:"settle" jsonschema:"format=whole-duration,default=1s"`                              // Rest between trials.
	Stop       string        `yaml:"stop" jsonschema:"minLength=1"`                                                     // Search ramp: CEL condition that ends a repeat's ramp, such as scr / icr < 0.8. Its variables are doubles: scr (succeeded per second), icr and rate (the requested rate), duration_s, scheduled, offered, succeeded, failed, success_ratio, latency_p50_ms, latency_p95_ms, latency_p99_ms.
	Thresholds []float64     `yaml:"thresholds" jsonschema:"minItems=1,exclusiveMinimum=0,maximum=1"`                   // Success ratios that define the capacities to find, descending; by default [0.9].
	Search     string        `yaml:"search" jsonschema:"enum=adaptive,enum=ramp,enum=bisect,enum=mlr,default=adaptive"` // Search for a capacity: adaptive, the paper's linear ramp, bisection, or the method of MLRsearch.
	Precision  float64       `yaml:"precision" jsonschema:"exclusiveMinimum=0,exclusiveMaximum=1"`                      // Searches adaptive and mlr: largest width of a capacity's interval, as a share of the capacity; by default 0.05.
	Confidence float64       `yaml:"confidence" jsonschema:"exclusiveMinimum=0.5,exclusiveMaximum=1"`                   // Search adaptive: probability that the interval contains the capacity; by default 0.95.

	AllowPrivilegeEscalation bool `yaml:"allow_privilege_escalation" jsonschema:"default=false"` // If true, programs with the setuid bit or file capabilities that the generator starts may gain privileges.

	// Program is the generator's absolute path, or "" for a built-in generator.
	Program string `yaml:"-"`

	stop func(vitrine.Outcome) bool
}

// The search methods for a capacity.
const (
	Adaptive = "adaptive"
	Ramp     = "ramp"
	Bisect   = "bisect"
	MLR      = "mlr"
)

// A Range is the lowest and the highest rate.
type Range [2]float64

// Min returns the lowest rate.
func (r Range) Min() float64 { return r[0] }

// Max returns the highest rate.
func (r Range) Max() float64 { return r[1] }

// JSONSchema returns the schema of a list of two rates above 0.
func (Range) JSONSchema() *jsonschema.Schema {
	two := uint64(2)
	return &jsonschema.Schema{Type: "array", Items: &jsonschema.Schema{Type: "number", ExclusiveMinimum: "0"}, MinItems: &two, MaxItems: &two}
}

// maxRates is the largest number of rates in a ramp. A plan with more is a
// typing error.
const maxRates = 10_000

// StopWhen returns the stop expression as a function, or nil if the workload has
// none. The function is safe for concurrent use.
func (w *Workload) StopWhen() func(vitrine.Outcome) bool { return w.stop }

// IsFileParameter reports whether a parameter of a generator is a path, which counts from the
// workload's folder: its name ends in _file.
func IsFileParameter(name string) bool { return strings.HasSuffix(name, "_file") }

// ParameterTexts returns the parameters as the generator gets them. Paths are absolute, because the
// generator runs in another folder than the workload's.
func (w *Workload) ParameterTexts() (map[string]string, error) {
	given, err := w.Parameters.Strings()
	for name, value := range given {
		if IsFileParameter(name) {
			given[name] = w.Resolve(value)
		}
	}
	return given, err
}

// LoadWorkload reads and checks the file at path. A mistake in the file is a
// *vitrine.BadInput, or several joined.
func LoadWorkload(path string, known Known) (*Workload, error) {
	file, err := document.Read(path, anyKind)
	if err != nil {
		return nil, err
	}
	return readWorkload(file, known)
}

// ParseWorkload is like LoadWorkload, but takes the bytes from the caller.
// Relative paths in them are resolved against the folder of path.
func ParseWorkload(path string, raw []byte, known Known) (*Workload, error) {
	file, err := document.Parse(path, raw, anyKind)
	if err != nil {
		return nil, err
	}
	return readWorkload(file, known)
}

func readWorkload(file document.File, known Known) (*Workload, error) {
	schema, err := workloadSchema(known)
	if err != nil {
		return nil, err
	}
	compiled, err := document.Compile(schema, Formats()...)
	if err != nil {
		return nil, err
	}
	return decodeWorkload(file, compiled, known)
}

func decodeWorkload(file document.File, schema *document.Schema, known Known) (*Workload, error) {
	root := file.Root()
	w := &Workload{File: file, Unit: "calls/s", Repeat: 1, Settle: time.Second, Thresholds: []float64{0.9}, Search: Adaptive}
	if err := schema.Decode(root, w); err != nil {
		return nil, err
	}
	w.Parameters = root.Sub("parameters")
	if err := w.check(root, known); err != nil {
		return nil, err
	}
	return w, nil
}

// check checks what the schema cannot express.
func (w *Workload) check(root document.Node, known Known) error {
	c := document.Errors{Node: root}
	low, high := w.Range.Min(), w.Range.Max()
	switch {
	case low > high:
		c.Bad(fmt.Sprintf("range ends at %g, below its start %g", high, low), "want [lowest, highest]", "range")
	case w.Increase > 0 && math.Floor((high-low)/w.Increase) >= maxRates:
		c.Bad(fmt.Sprintf("increase %g makes more than %d rates from %g to %g", w.Increase, maxRates, low, high), "want a larger step", "increase")
	}
	w.checkSearch(&c)
	w.checkPrecision(&c)
	for i := 1; i < len(w.Thresholds); i++ {
		if w.Thresholds[i] >= w.Thresholds[i-1] {
			c.Bad(fmt.Sprintf("thresholds[%d] is %g, after %g", i, w.Thresholds[i], w.Thresholds[i-1]), "want them descending", "thresholds", i)
		}
	}
	if _, builtIn := known.Generators[w.Generator]; !builtIn {
		w.checkProgram(&c, known)
	}
	if w.Stop != "" {
		stop, err := compileStop(root.Sub("stop"), w.Stop)
		if err != nil {
			c.Add(err)
		}
		w.stop = stop
	}
	return c.Join()
}

// checkSearch refuses options that the search would ignore. increase is allowed
// with every search, so that a user can change a ramp to another search.
func (w *Workload) checkSearch(c *document.Errors) {
	precise := w.Search == Adaptive || w.Search == MLR
	switch {
	case w.Search == Ramp && w.Increase == 0:
		c.Bad("search ramp has no increase", "give the step from rate to rate: increase", "search")
	case w.Stop != "" && w.Search != Ramp:
		c.Bad(fmt.Sprintf("stop belongs to search ramp, this is %s", w.Search), "leave stop away, or say search: ramp", "stop")
	}
	if w.Search == MLR && w.Range.Min() == w.Range.Max() {
		c.Bad(fmt.Sprintf("range of one rate, %g, for search mlr", w.Range.Max()), "give it a lowest and a highest rate, or say search: ramp", "range")
	}
	if w.Precision != 0 && !precise {
		c.Bad(fmt.Sprintf("precision belongs to searches adaptive and mlr, this is %s", w.Search), "leave it away: increase is what "+w.Search+" is precise to", "precision")
	}
	if w.Confidence != 0 && w.Search != Adaptive {
		c.Bad(fmt.Sprintf("confidence belongs to search adaptive, this is %s", w.Search), "leave it away: other intervals are of 95%", "confidence")
	}
}

// checkPrecision refuses a precision that the longest trial cannot show, even at the highest rate:
// telling whether a backlog grows takes calls (see docs/measuring.md).
func (w *Workload) checkPrecision(c *document.Errors) {
	const calls, longest = 9, 16 // at a precision of 1; times the duration
	if w.Search != Adaptive || w.Precision == 0 {
		return
	}
	needed, most := calls/(w.Precision*w.Precision*w.Range.Max()), longest*w.Duration.Seconds()
	if needed > most {
		c.Bad(fmt.Sprintf("precision %g needs trials of %.4g s at %g %s, but with duration %s none is longer than %.4g s", w.Precision, needed, w.Range.Max(), w.Unit, w.Duration, most),
			fmt.Sprintf("give a duration of at least %.4g s, a larger precision, or a higher range", needed/longest), "precision")
	}
}

// checkProgram checks a generator that is not built in.
func (w *Workload) checkProgram(c *document.Errors, known Known) {
	path := w.Resolve(w.Generator)
	why := whyNotExecutable(path)
	if why == "" {
		w.Program = path
		return
	}
	if known.Generators == nil && !isPath(w.Generator) {
		return // may be a built-in generator: the caller listed none
	}
	c.Bad(fmt.Sprintf("generator %s is not built in, and as a path %s", document.Quote(w.Generator), why),
		document.Choose(w.Generator, slices.Sorted(maps.Keys(known.Generators)))+", or the path of an executable from the file's folder", "generator")
}
