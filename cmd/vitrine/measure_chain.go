package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"vitrine"
	"vitrine/measure"
	"vitrine/measure/chain"
	"vitrine/reference/forwarder/xdp"
	"vitrine/result"
	"vitrine/testbed"
)

// chainFlags are the flags of measure chain.
type chainFlags struct {
	settings chain.Settings
	lengths  string
	script   string
	inject   string

	cpus, generatorCPUs cpuList
	options             options
	runFlags
}

func (a *app) measureChainCommand() *cobra.Command {
	f := chainFlags{}
	c := &cobra.Command{
		Use:   "chain",
		Short: "Measure round trip and delay variation of chains of forwarders, by chain length",
		Long: "Sends probes through 1 to N forwarders that rewrite MAC addresses; replies come\n" +
			"straight back. Fits a line to the times over the chain length, and reports R squared\n" +
			"and residuals. Sender and receiver are on the host; a chain of length 0 connects\n" +
			"them directly.\n\n" +
			"With --forwarder ovs, rules of Open vSwitch steer and rewrite, and a process at each\n" +
			"hop sends back the frames that it receives. With --forwarder script, the program of\n" +
			"--script forwards; its environment has INTERFACE, NEXT_MAC and ADDRESS.",
		Example: "  vitrine measure chain --fabric bridge,macvlan,ovs --length 0..4\n" +
			"  vitrine measure chain --forwarder xdp --length 0..8 --inject 2:50us\n" +
			"  vitrine measure chain --forwarder script --script ./click.sh --length 0..3",
		Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error { return a.measureChain(c.Context(), f) },
	}
	s, flags := &f.settings, c.Flags()
	flags.StringSliceVar(&s.Substrates, "substrate", []string{"process"}, "substrate of the forwarders")
	flags.StringSliceVar(&s.Fabrics, "fabric", []string{"bridge"}, "fabric between them")
	flags.StringSliceVar(&s.Forwarders, "forwarder", []string{chain.Packet}, "forwarding program: "+strings.Join(chain.Forwarders(), ", "))
	flags.StringVar(&f.script, "script", "", "program and arguments for --forwarder script, separated by spaces")
	flags.StringVar(&s.Attach, "attach", "", "mode of --forwarder xdp: auto, native, generic")
	flags.StringVar(&f.lengths, "length", fmt.Sprintf("0..%d", chain.DefaultMost), "numbers of forwarders: 0..4 or 0,2,4")
	flags.IntVar(&s.Size, "frame", 64, "frame size in bytes, without the frame check sequence")
	flags.IntVar(&s.Packets, "count", chain.DefaultPackets, "packets per stream")
	flags.Float64Var(&s.Rate, "rate", chain.DefaultRate, "packets per second")
	flags.IntVar(&s.Repeat, "repeat", chain.DefaultRepeat, "fresh deployments")
	flags.IntVar(&s.Cut.Head, "head", 0, "packets to leave out at the beginning of a stream")
	flags.IntVar(&s.Cut.Tail, "tail", 0, "packets to leave out at the end of a stream")
	flags.StringVar(&f.inject, "inject", "", "delay frames at a hop, numbered from the receiver, to check that the result shows it: 2:50us")
	flags.Var(&f.cpus, "cpus", "CPUs of the forwarders, such as 2-5,8 (default all except those of sender and receiver)")
	flags.Var(&f.generatorCPUs, "generator-cpus", "CPUs of sender and receiver (default the first)")
	f.options.register(c, "")
	f.register(c, "chain", "stream", "the result")
	completeFlag(c, "substrate", substrateNames())
	completeFlag(c, "fabric", fabricNames())
	completeFlag(c, "forwarder", chain.Forwarders())
	completeFlag(c, "attach", []string{xdp.Auto, xdp.Native, xdp.Generic})
	return c
}

func (a *app) measureChain(ctx context.Context, f chainFlags) error {
	var err error
	s := f.settings
	if s.Program, err = scriptWords(f.script); err != nil {
		return err
	}
	if s.Lengths, err = parseLengths(f.lengths); err != nil {
		return err
	}
	if s.Inject, err = parseInjection(f.inject); err != nil {
		return err
	}
	if err = checkPlaces(s.Substrates, s.Fabrics); err != nil {
		return err
	}
	if s.Options, err = f.options.load(chainComponents()); err != nil {
		return err
	}
	plan, err := chain.MakePlan(s, chains)
	if err != nil {
		return err
	}
	cpus, err := testbed.ShareCPUs(f.cpus, f.generatorCPUs)
	if err != nil {
		return err
	}
	if f.dryRun {
		return a.printChainPlan(plan, f.json)
	}
	in := session{dir: runFolder(f.out, "chain"), resume: f.resume, cpus: cpus, options: &f.options, cpuSharing: f.cpuSharing}
	return measureAndPresent(ctx, a, in, f.json, chain.Read, func(in session) error { return a.chain(ctx, plan, in) })
}

// scriptWords splits a command line into words and makes the program's path
// absolute, because the program runs in another folder.
func scriptWords(line string) ([]string, error) {
	words := strings.Fields(line)
	if len(words) == 0 || !strings.Contains(words[0], "/") {
		return words, nil
	}
	path, err := filepath.Abs(words[0])
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		return nil, &vitrine.BadInput{File: "--script", Found: err.Error(), Want: "name a program"}
	}
	words[0] = path
	return words, nil
}

// parseLengths reads "0..4" and "0,2,4".
func parseLengths(text string) ([]int, error) {
	bad := &vitrine.BadInput{File: "--length", Found: fmt.Sprintf("%q", text), Want: "want 0..4 or 0,2,4"}
	var list []int
	if first, last, ok := strings.Cut(text, ".."); ok {
		from, err := strconv.Atoi(first)
		to, toErr := strconv.Atoi(last)
		if err != nil || toErr != nil || from < 0 || to < from || to > chain.MaxLength {
			return nil, bad
		}
		for n := from; n <= to; n++ {
			list = append(list, n)
		}
		return list, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil, bad
		}
		list = append(list, n)
	}
	return list, nil
}

// parseInjection reads "2:50us".
func parseInjection(text string) (i chain.Injection, err error) {
	if text == "" {
		return i, nil
	}
	hop, hold, ok := strings.Cut(text, ":")
	i.Hop, err = strconv.Atoi(hop)
	if err == nil {
		i.Delay, err = time.ParseDuration(hold)
	}
	if err != nil || !ok || i.Hop < 1 {
		return i, &vitrine.BadInput{File: "--inject", Found: fmt.Sprintf("%q", text), Want: "want a hop and its delay, such as 2:50us"}
	}
	return i, nil
}

func (a *app) printChainPlan(p chain.Plan, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(a.stdout).Encode(p)
	}
	for _, path := range p.Paths {
		fmt.Fprintln(a.stdout, path)
	}
	printOptions(a.stdout, p.Settings.Options)
	_, err := fmt.Fprintf(a.stdout, "chains of %d forwarders, %d streams of %d packets, sent in %s, without deployment\n",
		p.Settings.Lengths, p.Streams, p.Settings.Packets, p.Sending.Round(time.Second))
	return err
}

// chain runs the measurement in the run folder and writes the report.
func (a *app) chain(ctx context.Context, plan chain.Plan, in session) (err error) {
	r, err := a.begin(ctx, in, func(b *backends) (result.Manifest, error) { return chainManifest(ctx, b, plan, in) })
	if err != nil {
		return err
	}
	defer func() { err = r.endStreams(ctx, err) }()
	stage, err := r.stage(ctx)
	if err != nil {
		return err
	}
	return chain.Run(ctx, chain.Config{Plan: plan, Stage: stage})
}

// chainManifest returns the manifest of the run. The settings become a specification, like the
// files of a campaign, because a resumed run must have the same settings.
func chainManifest(ctx context.Context, b *backends, plan chain.Plan, in session) (result.Manifest, error) {
	asked := plan.Settings
	asked.Options = nil // options are a separate specification
	settings, err := json.Marshal(asked)
	if err != nil {
		return result.Manifest{}, err
	}
	plan.Settings.Platform = measure.ReadPlatform("/", in.cpus, measure.KernelCPU{Why: "chains are measured without it"}, networkingModels(plan.Settings.Fabrics))
	plan.Settings.Platform.ReceiverNode = measure.NUMANodes("/", plan.Settings.UsedCPUs(in.cpus.Function))
	plan.Settings.HopCPUs = plan.Settings.PlaceHops(in.cpus.Function)
	measured, err := json.Marshal(plan.Settings)
	if err != nil {
		return result.Manifest{}, err
	}
	m := b.manifest(ctx, in.cpus, plan.Settings.Substrates, plan.Settings.Fabrics, in.options.parts)
	m.VNF, m.Unit, m.Measurement = "chain of forwarders", "packets/s", measured
	m.Specs = append(slices.Clone(in.options.specs), result.NewSpec("settings", "", settings), cpuSpec(in.cpus, measure.KernelCPU{}))
	m.Generator = result.Generator{Name: "packet", Version: toolVersion()}
	return m, nil
}
