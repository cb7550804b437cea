package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"vitrine"
	"vitrine/document"
	"vitrine/fabric/impair"
	"vitrine/internal/runstate"
	"vitrine/load"
	"vitrine/load/http"
	"vitrine/load/s1ap"
	"vitrine/load/simulated"
	"vitrine/load/sip"
	"vitrine/load/sipp"
	"vitrine/measure/cpu"
	"vitrine/measure/packet"
	"vitrine/monitor"
	"vitrine/reference/epc"
	"vitrine/reference/epc/hss"
	"vitrine/reference/epc/mme"
	"vitrine/reference/epc/pcrf"
	"vitrine/reference/epc/pgw"
	"vitrine/reference/epc/s1"
	"vitrine/reference/epc/sgw"
	"vitrine/reference/epc/subscriberdb"
	"vitrine/reference/forwarder"
	"vitrine/reference/ims"
	"vitrine/reference/ims/bono"
	"vitrine/reference/ims/homer"
	"vitrine/reference/ims/homestead"
	"vitrine/reference/ims/ralf"
	"vitrine/reference/ims/sidecar"
	"vitrine/reference/ims/sprout"
	"vitrine/spec"
	"vitrine/substrate"
	"vitrine/substrate/qemu/machine"
	"vitrine/testbed"
	"vitrine/testbed/quiet"
)

// Only the lists in this file, substrates.go and fabrics.go know all back ends. A new back end is
// one line. store_engine.go and image.go list engines and packers.

// knownBackends returns what the back ends add to the files that users write.
func knownBackends() spec.Known {
	k := spec.Known{
		Substrates: make(map[string]any), Fabrics: map[string]any{"auto": nil}, Generators: make(map[string]any),
		Servers: map[string]any{impairPart: impair.Config{}},
	}
	for name, kind := range substrates() {
		k.Substrates[name] = kind.config
	}
	for name, kind := range fabrics() {
		k.Fabrics[name] = kind.config
	}
	for name, kind := range generators() {
		k.Generators[name] = kind.params
	}
	return k
}

// A backends opens the substrates and fabrics of one run.
type backends struct {
	run    *runstate.Run // nil: substrates are opened only for checks
	log    *slog.Logger
	self   string          // this executable
	folder string          // of the deployment or options file; empty: no file
	prober *machine.Prober // finds the accelerator of virtual machines
	impair *impair.Config  // impairments of the instances' links; nil: none
	cpus   document.CPUs   // CPUs that a switch of the run may use; empty: any

	images *sync.Map // digests of the images that the run began with; nil: images may change

	emulator *int // CPU of the link emulator if servers.impair names none; nil: the generator's

	planned bool // a paper's plan names the fabrics, not the user
}

func newBackends(run *runstate.Run, folder string, log *slog.Logger) (*backends, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program's own file: %w", err)
	}
	return &backends{run: run, log: log, self: self, folder: folder, prober: new(machine.Prober)}, nil
}

// unchanged returns an error if this executable is not the file at its path any more. Instances and
// generators run that file, so after an upgrade the run would mix two builds.
func (b *backends) unchanged() error {
	running, err := os.Stat("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("find this program's own file: %w", err)
	}
	if file, err := os.Stat(b.self); err == nil && os.SameFile(running, file) {
		return nil
	}
	return &vitrine.BadInput{File: b.self, Found: "replaced or removed during the run", Want: "continue it by --resume with the new program, or begin another run"}
}

// testbed returns the configuration for opening sites. parts are the back ends' own options.
func (b *backends) testbed(parts map[string]document.Node) testbed.Config {
	if part, given := parts[fabricName("auto")]; given { // a site looks up the options by the name in the file
		parts = maps.Clone(parts)
		parts["auto"] = part
	}
	return testbed.Config{
		Run: b.run.ID, Parts: parts, Self: b.self,
		Substrate: b.substrate,
		Host: func(ctx context.Context, o spec.Choice) (substrate.Substrate, error) {
			o.Substrate = "process"
			return b.substrate(ctx, o, document.Node{})
		},
		Fabric: b.fabric,
	}
}

// generator returns the command of a built-in generator.
func (b *backends) generator(name string) ([]string, error) {
	return []string{b.self, "generate", name}, nil
}

// A generatorKind is one built-in load generator.
type generatorKind struct {
	params any                                                                     // type of a workload's parameters
	run    func(ctx context.Context, t load.Trial, stdout, stderr io.Writer) error // runs one trial and prints its report
	check  func(given map[string]string) error                                     // checks the parameters
	// version returns the version of the software that it drives, or "" if it is unknown; nil: none but this program.
	version func(ctx context.Context) string
}

// generators returns the built-in generators, run as `vitrine generate NAME`. A new generator is one
// entry.
func generators() map[string]generatorKind {
	return map[string]generatorKind{
		"http":      {params: http.Params{}, run: http.Run, check: checkBy(http.Decode)},
		"s1ap":      {params: s1ap.Params{}, run: s1ap.Run, check: checkBy(s1ap.Decode)},
		"simulated": {params: simulated.Params{}, run: simulated.Run, check: checkBy(simulated.Decode)},
		"sip":       {params: sip.Params{}, run: sip.Run, check: checkBy(sip.Decode)},
		"sipp":      {params: sipp.Params{}, run: sipp.Run, check: checkSIPp, version: sippVersion},
	}
}

// checkBy returns a check that decodes the parameters.
func checkBy[Params any](decode func(map[string]string) (Params, error)) func(map[string]string) error {
	return func(given map[string]string) error {
		_, err := decode(given)
		return err
	}
}

func checkSIPp(given map[string]string) error {
	_, _, err := sipp.Decode(given)
	return err
}

// sippVersion returns the version of SIPp. Without SIPp, the trials fail with the reason.
func sippVersion(ctx context.Context) string {
	version, _ := sipp.Version(ctx)
	return version
}

// loadWorkload reads the file and checks it, including the parameters of a built-in generator.
func loadWorkload(path string) (*spec.Workload, error) {
	w, err := spec.LoadWorkload(path, knownBackends())
	if err != nil {
		return nil, err
	}
	kind, builtIn := generators()[w.Generator]
	if !builtIn {
		return w, nil
	}
	given, err := w.ParameterTexts()
	if err != nil {
		return nil, err
	}
	err = kind.check(given)
	bad := (*vitrine.BadInput)(nil)
	if !errors.As(err, &bad) {
		return w, err
	}
	at := []string{"parameters"}
	for word := range strings.FieldsSeq(bad.Found) { // the first word that is a parameter's name
		if _, is := given[word]; is {
			at = append(at, word)
			break
		}
	}
	return nil, w.BadInput(bad.Found, bad.Want, at...)
}

// references returns the programs of `vitrine reference NAME`: components of
// the reference functions, a simulated function, and tools for measurements.
func references() map[string]program {
	return map[string]program{
		"bono": referenceProgram(bono.Run), "sprout": referenceProgram(sprout.Run), "homestead": referenceProgram(homestead.Run), "homer": referenceProgram(homer.Run), "ralf": referenceProgram(ralf.Run), "sidecar": referenceProgram(sidecar.Run),
		"epc": referenceProgram(epc.Run), "mme": referenceProgram(mme.Run), "hss": referenceProgram(hss.Run), "pcrf": referenceProgram(pcrf.Run), "sgw": referenceProgram(sgw.Run), "pgw": referenceProgram(pgw.Run),
		"subscribers": referenceProgram(subscriberdb.Run),
		"simulated":   simulated.Serve, "forwarder": forwarder.Run,
		"send": packet.RunSend, "receive": packet.RunReceive, "echo": packet.RunEcho, "soak": cpu.RunSoak,
	}
}

// referenceProgram runs a component of the reference IMS or EPC with rare garbage
// collections.
func referenceProgram(run program) program {
	return func(ctx context.Context, args []string, stdout, stderr io.Writer) error {
		ims.CollectRarely()
		return run(ctx, args, stdout, stderr)
	}
}

// checks returns what this host supports of the back ends.
func (b *backends) checks(ctx context.Context) []vitrine.Check {
	var all []vitrine.Check
	for _, name := range substrateNames() {
		all = append(all, b.substrateChecks(ctx, name)...)
	}
	kinds := fabrics()
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		if check := kinds[name].check; check != nil {
			all = append(all, check(ctx)...)
		}
	}
	return append(slices.Concat(all, impair.Check(ctx), monitor.Check(ctx), sipp.Check(ctx)), cpuCheck(), quiet.AwakeCheck())
}

// cpuCheck checks whether the generator and the function can have CPUs of their own.
func cpuCheck() vitrine.Check {
	cpus, err := testbed.ShareCPUs(nil, nil)
	return vitrine.NewCheck("runs: two CPUs", fmt.Sprintf("generator on %v, function on %v", cpus.Generator, cpus.Function), err)
}

// generatorVersion returns the version of the load generator, or "" if it is
// unknown.
func generatorVersion(ctx context.Context, w *spec.Workload) string {
	kind, builtIn := generators()[w.Generator]
	switch {
	case !builtIn:
		return ""
	case kind.version == nil:
		return toolVersion()
	}
	return kind.version(ctx)
}

// generatorTransport names the transport of a generator that has several.
func generatorTransport(w *spec.Workload) string {
	if w.Generator != "s1ap" {
		return ""
	}
	given, err := w.Parameters.Strings()
	if err != nil {
		return "" // invalid parameters, which the generator refuses
	}
	return s1.Describe(given["transport"])
}

// oneOf returns a BadInput if the name is not in the list.
func oneOf(what, name string, list []string) error {
	if slices.Contains(list, name) {
		return nil
	}
	return &vitrine.BadInput{File: what, Found: fmt.Sprintf("%q", name), Want: "want one of " + strings.Join(list, ", ")}
}
