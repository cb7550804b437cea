package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"vitrine"
	"vitrine/measure"
	"vitrine/measure/delay"
	"vitrine/measure/packet"
	"vitrine/result"
	"vitrine/testbed"
)

func (a *app) measureCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "measure",
		Short: "Measure networks packet by packet",
		Args:  checkVerb,
		RunE:  showHelp,
	}
	c.AddCommand(a.measureNetworkCommand(), a.measureChainCommand())
	return c
}

// networkFlags are the flags of measure network.
type networkFlags struct {
	substrates, fabrics, metrics []string
	frames                       []int
	count, repeat, head, tail    int
	rate                         float64
	cpus, generatorCPUs          cpuList
	kernelCPU                    string
	inside                       bool
	options                      options
	runFlags
}

func (a *app) measureNetworkCommand() *cobra.Command {
	var f networkFlags
	c := networkCommand(&f)
	c.RunE = func(c *cobra.Command, _ []string) error {
		return a.measureNetwork(c.Context(), f, c.Flags().Changed("rate"))
	}
	return c
}

// networkCommand returns the command with its flags.
func networkCommand(f *networkFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "network",
		Short: "Measure latency, jitter and CPU time per packet of every substrate on every fabric",
		Long: "Sends streams of numbered, time-stamped packets between two instances, on every given\n" +
			"substrate and fabric. Reports delay, loss and order of the packets, and what the\n" +
			"instrument itself adds. Frame sizes are without the frame check sequence.",
		Example: "  vitrine measure network --dry-run\n" +
			"  vitrine measure network --fabric direct,bridge,macvlan --out runs/network\n" +
			"  vitrine measure network --substrate process,docker --fabric bridge --measure latency --frames 64,1514 --count 5000",
		Args: args(cobra.NoArgs),
	}
	flags := c.Flags()
	flags.StringSliceVar(&f.substrates, "substrate", []string{"process"}, "where the receiver runs: "+strings.Join(substrateNames(), ", "))
	flags.StringSliceVar(&f.fabrics, "fabric", []string{"direct", "bridge", "macvlan"}, "network between the two: "+strings.Join(fabricNames(), ", "))
	flags.StringSliceVar(&f.metrics, "measure", measure.Metrics(), "what to measure: "+strings.Join(measure.Metrics(), ", "))
	flags.IntSliceVar(&f.frames, "frames", packet.Sizes(), "frame sizes for latency in bytes, without the frame check sequence; jitter and efficiency use the first")
	flags.IntVar(&f.count, "count", measure.DefaultPackets, "packets per stream")
	flags.IntVar(&f.repeat, "repeat", measure.DefaultRepeat, "fresh deployments of each combination; intervals come from their differences")
	flags.Float64Var(&f.rate, "rate", 0, fmt.Sprintf("packets per second in every stream (default %d for latency, %g Mb/s for jitter, %d for efficiency, lowered if this host does not hold them)",
		measure.DefaultLatencyRate, measure.DefaultBandwidth/1e6, measure.DefaultEfficiencyRate))
	flags.IntVar(&f.head, "head", -1, "packets to leave out at the beginning of a stream")
	flags.IntVar(&f.tail, "tail", -1, "packets to leave out at the end of a stream")
	flags.Lookup("head").DefValue, flags.Lookup("tail").DefValue = "1%", "1%"
	flags.Var(&f.cpus, "cpus", "CPUs of the receiver, such as 2-5,8 (default all except the sender's)")
	flags.Var(&f.generatorCPUs, "generator-cpus", "CPUs of the sender (default the first)")
	flags.StringVar(&f.kernelCPU, "kernel-cpu", measure.OwnCPU, "CPU of the kernel's receive work: a number, auto (a separate one, if available), none (the sender's)")
	flags.BoolVar(&f.inside, "inside", false, "send from an instance on the substrate instead of from the host")
	f.options.register(c, "")
	f.register(c, "network", "stream", "what was measured")
	completeFlag(c, "substrate", substrateNames())
	completeFlag(c, "fabric", fabricNames())
	completeFlag(c, "measure", measure.Metrics())
	return c
}

// settings returns the settings according to the flags.
func (f *networkFlags) settings(rateGiven bool) (measure.Settings, error) {
	var s measure.Settings
	if err := checkPlaces(f.substrates, f.fabrics); err != nil {
		return s, err
	}
	if len(f.frames) == 0 {
		return s, &vitrine.BadInput{File: "--frames", Found: "no size", Want: "name at least one, such as 64"}
	}
	share := func(given int) int {
		if given < 0 {
			return f.count / 100
		}
		return given
	}
	s = measure.Settings{
		Kind: measure.Kind, Metrics: f.metrics, Substrates: f.substrates, Fabrics: f.fabrics, Inside: f.inside,
		Sizes: f.frames, SmallSize: f.frames[0], Packets: f.count, Repeat: f.repeat,
		Cut: delay.Cut{Head: share(f.head), Tail: share(f.tail)},
		Rates: measure.Rates{
			Latency: measure.DefaultLatencyRate, Jitter: measure.PacketRate(measure.DefaultBandwidth, f.frames[0]), Efficiency: measure.DefaultEfficiencyRate,
		},
	}
	if rateGiven {
		s.Rates = measure.Rates{Latency: f.rate, Jitter: f.rate, Efficiency: f.rate}
		s.Given = measure.Given{Latency: true, Jitter: true, Efficiency: true}
	}
	return s, s.Check()
}

func (a *app) measureNetwork(ctx context.Context, f networkFlags, rateGiven bool) error {
	s, err := f.settings(rateGiven)
	if err != nil {
		return err
	}
	if s.Options, err = f.options.load(networkComponents()); err != nil {
		return err
	}
	cpus, err := testbed.ShareCPUs(f.cpus, f.generatorCPUs)
	if err != nil {
		return err
	}
	if f.dryRun {
		return a.printNetworkPlan(s, cpus, f.kernelCPU, f.json)
	}
	in := session{dir: runFolder(f.out, "network"), resume: f.resume, cpus: cpus, options: &f.options, cpuSharing: f.cpuSharing}
	return measureAndPresent(ctx, a, in, f.json, measure.Read, func(in session) error { return a.network(ctx, s, f.kernelCPU, in) })
}

// network runs the measurement in the run folder and writes the report.
func (a *app) network(ctx context.Context, s measure.Settings, kernelCPU string, in session) (err error) {
	c := measure.Config{}
	if c.KernelCPU, in.cpus, err = measure.ChooseKernelCPU("/", kernelCPU, in.cpus); err != nil {
		return err
	}
	if c.KernelCPU.On {
		in.kernel = []int{c.KernelCPU.CPU}
	}
	r, err := a.begin(ctx, in, func(b *backends) (result.Manifest, error) {
		// The CPU time per packet is counted on these two CPUs only.
		b.cpus = []int{in.cpus.Generator[0], in.cpus.Function[0]}
		slices.Sort(b.cpus)
		b.emulator = measure.EmulatorCPU("/", in.cpus)
		return networkManifest(ctx, b, s, c.KernelCPU, in)
	})
	if err != nil {
		return err
	}
	defer func() { err = r.endStreams(ctx, err) }()
	if c.Stage, err = r.stage(ctx); err != nil {
		return err
	}
	return measureInto(ctx, c, s, r.backends.emulatorPlace())
}

// measureInto scales the settings to the host and runs the plan. A resumed run
// keeps its scaled settings. emulator is where the link emulator runs.
func measureInto(ctx context.Context, c measure.Config, s measure.Settings, emulator string) error {
	m := c.Results.Manifest()
	kept, scaled, err := measure.ReadSettings(m)
	if err != nil {
		return err
	}
	if scaled {
		s = kept
	} else {
		s.Platform = measure.ReadPlatform("/", c.CPUs, c.KernelCPU, networkingModels(s.AllFabrics()))
		s.Platform.Emulator = emulator
		if s, err = measure.Scale(ctx, c, s, c.Results.LogDir("scale")); err != nil {
			return err
		}
		if m.Measurement, err = json.Marshal(s); err != nil {
			return err
		}
		if err := c.Results.SaveManifest(m); err != nil {
			return err
		}
	}
	if c.Plan, err = measure.MakePlan(s, machines); err != nil {
		return err
	}
	return measure.Run(ctx, c)
}

// networkManifest returns the manifest of the run. The requested settings become
// a specification, because a resumed run must have the same ones.
func networkManifest(ctx context.Context, b *backends, s measure.Settings, kernel measure.KernelCPU, in session) (result.Manifest, error) {
	s.Options = nil // options are a separate specification
	asked, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return result.Manifest{}, err
	}
	m := b.manifest(ctx, in.cpus, s.AllSubstrates(), s.AllFabrics(), in.options.parts)
	m.VNF, m.Unit = "network", "packets/s"
	m.Specs = append(slices.Clone(in.options.specs), result.NewSpec("measurement", "the flags", asked), cpuSpec(in.cpus, kernel))
	m.Generator = result.Generator{Name: "vitrine reference send", Version: toolVersion()}
	return m, nil
}

// placement describes which CPUs the measurement uses.
func placement(cpus testbed.CPUs, kernel measure.KernelCPU) string {
	return fmt.Sprintf("sender on CPUs %v, receiver on CPUs %v; the kernel's receive work: %s", cpus.Generator, cpus.Function, kernel)
}

// cpuSpec returns the CPUs as a specification, so that a run cannot be resumed
// on other CPUs.
func cpuSpec(cpus testbed.CPUs, kernel measure.KernelCPU) result.Spec {
	kernel.Why = "" // the reason may differ when the CPU is the same
	text := placement(cpus, kernel)
	return result.NewSpec("CPUs", text, []byte(text))
}

func (a *app) printNetworkPlan(s measure.Settings, cpus testbed.CPUs, kernelCPU string, asJSON bool) error {
	kernel, cpus, err := measure.ChooseKernelCPU("/", kernelCPU, cpus)
	if err != nil {
		return err
	}
	p, err := measure.MakePlan(s, machines)
	if err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(a.stdout).Encode(p)
	}
	w := a.stdout
	fmt.Fprintln(w, placement(cpus, kernel))
	for _, where := range p.Combinations {
		fmt.Fprintf(w, "%s\n", where)
	}
	printOptions(w, s.Options)
	if slices.Contains(s.Metrics, measure.Latency) {
		fmt.Fprintf(w, "  latency: frames of %s bytes without FCS, %.0f packets a second\n", result.Numbers(s.Sizes), s.Rates.Latency)
	}
	if slices.Contains(s.Metrics, measure.Jitter) {
		fmt.Fprintf(w, "  jitter: frames of %d bytes without FCS, %.0f packets a second\n", s.SmallSize, s.Rates.Jitter)
	}
	if slices.Contains(s.Metrics, measure.Efficiency) {
		fmt.Fprintf(w, "  efficiency: frames of %d bytes without FCS, %.0f packets a second\n", s.SmallSize, s.Rates.Efficiency)
	}
	if s.Given == (measure.Given{}) {
		fmt.Fprintln(w, "rates that this host cannot hold are lowered before the first stream")
	}
	_, err = fmt.Fprintf(w, "%d streams of %d packets, %d repeats; %s of sending, without deployment\n", p.Streams, s.Packets, s.Repeat, p.Sending.Round(time.Second))
	return err
}
