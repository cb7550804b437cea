package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"vitrine"
	"vitrine/affinity"
	"vitrine/affinity/correlate"
	"vitrine/affinity/flow"
	"vitrine/report"
	"vitrine/report/ladder"
)

// affinityFlags are the flags of affinity.
type affinityFlags struct {
	names   string
	out     string
	delay   time.Duration
	noMerge bool
	json    bool

	messages bool
	memory   string
	explain  uint64

	pseudonymise string
	compare      bool
	live         liveFlags
}

func (a *app) affinityCommand() *cobra.Command {
	var f affinityFlags
	c := &cobra.Command{
		Use:   "affinity SOURCE...",
		Short: "Find which functions belong together, from captures, interfaces and call flows",
		Long: "Finds the transactions in packet captures, or reads them from call flows. Prints how many\n" +
			"messages functions exchange in each type of transaction, which of them are on the\n" +
			"critical path and what state they share, and which functions should share a host.\n" +
			"SOURCE is a capture (pcap, pcapng, also with gzip or zstd; - for one from standard input),\n" +
			"a call-flow file, or the name of a built-in flow or of a group of them (see vitrine\n" +
			"affinity flows). See docs/affinity.md.\n\n" +
			"With --interface it reads the frames at network interfaces, until --duration is over or\n" +
			"Ctrl-C. This needs the capability CAP_NET_RAW.\n\n" +
			"With --messages it prints which messages packet captures or interfaces have.",
		Example: "  vitrine affinity epc\n" +
			"  vitrine affinity ims-reference --no-merge --delay 10ms\n" +
			"  vitrine affinity epc/attach my.flow --names names.yaml --out runs/affinity\n" +
			"  vitrine affinity mme.pcap sgw.pcap.gz --names names.yaml --out runs/affinity\n" +
			"  vitrine affinity mme.pcap --explain 4711\n" +
			"  vitrine affinity mme.pcap --pseudonymise pseudonyms.key --out runs/affinity\n" +
			"  vitrine affinity --compare runs/before runs/after\n" +
			"  vitrine affinity mme.pcap sgw.pcap.gz --messages\n" +
			"  ssh mme tcpdump -c 100000 -w - | vitrine affinity -\n" +
			"  vitrine affinity -i eth0,eth1 --duration 10m --write mme.pcapng --out runs/affinity",
		Args: args(func(c *cobra.Command, given []string) error {
			if f.live.live() {
				return nil
			}
			return cobra.MinimumNArgs(1)(c, given)
		}),
		RunE: func(c *cobra.Command, given []string) error {
			given = withStdin(given)
			if f.compare {
				return a.compare(c.Context(), given, f)
			}
			if f.messages {
				return a.messages(c.Context(), given, f)
			}
			return a.affinity(c.Context(), given, f)
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.names, "names", "", "file with the names, roles and needs of functions, and the host that an aggregate must fit into")
	flags.StringVar(&f.out, "out", "", "also write affinity.json, affinity.html, SVG and DOT into this folder")
	flags.DurationVar(&f.delay, "delay", 5*time.Millisecond, "delay of a message between two sites, one way")
	flags.BoolVar(&f.noMerge, "no-merge", false, "an aggregate for each type, even if types have the same members")
	flags.BoolVar(&f.json, "json", false, "print as JSON")
	flags.BoolVar(&f.messages, "messages", false, "print the messages in captures (pcap, pcapng), in place of an analysis")
	flags.StringVar(&f.memory, "max-memory", "", "bound of the memory for reading captures, such as 1GiB (default 512MiB)")
	flags.Uint64Var(&f.explain, "explain", 0, "print why the message with this number belongs to its transaction")
	flags.BoolVar(&f.compare, "compare", false, "print what changed from the first SOURCE to the second; a source may also be affinity.json, or the folder that --out made")
	flags.StringVar(&f.pseudonymise, "pseudonymise", "", "replace the identities in captures by pseudonyms made with the key in this file; a missing file is created")
	f.live.add(flags)
	_ = c.MarkFlagFilename("pseudonymise")
	c.MarkFlagsMutuallyExclusive("compare", "messages")
	c.MarkFlagsMutuallyExclusive("compare", "explain")
	c.MarkFlagsMutuallyExclusive("compare", "interface")
	c.MarkFlagsMutuallyExclusive("messages", "out")
	c.MarkFlagsMutuallyExclusive("messages", "explain")
	_ = c.MarkFlagFilename("names", "yaml", "yml", "json")
	_ = c.MarkFlagDirname("out")
	c.ValidArgsFunction = completeFlows(cobra.ShellCompDirectiveDefault)
	c.AddCommand(a.flowsCommand())
	return c
}

// completeFlows completes the names of built-in flows. rest is the directive for other
// arguments.
func completeFlows(rest cobra.ShellCompDirective) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return append(flow.Groups(), flow.Shipped()...), rest
	}
}

// flowsCommand lists the built-in flows, or prints them.
func (a *app) flowsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "flows [NAME...]",
		Short: "List the built-in call flows, or print those named",
		Example: "  vitrine affinity flows\n" +
			"  vitrine affinity flows epc/attach > attach.flow",
		ValidArgsFunction: completeFlows(cobra.ShellCompDirectiveNoFileComp),
		RunE: func(_ *cobra.Command, given []string) error {
			if len(given) == 0 {
				return a.listFlows()
			}
			var found []*flow.Transaction
			for _, name := range given {
				flows, err := flow.Find(name)
				if err != nil {
					return err
				}
				found = append(found, flows...)
			}
			for i, t := range found {
				if i > 0 {
					fmt.Fprintln(a.stdout)
				}
				if _, err := io.WriteString(a.stdout, t.Text); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func (a *app) listFlows() error {
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	for _, group := range flow.Groups() {
		flows, err := flow.Find(group)
		if err != nil {
			return err
		}
		for _, t := range flows {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", t.Source, t.Type, t.Title, t.Clauses)
		}
	}
	return w.Flush()
}

func (a *app) affinity(ctx context.Context, given []string, f affinityFlags) error {
	analysis, damage, err := a.analyse(ctx, given, f)
	if err != nil {
		return err
	}
	var written error
	if f.out != "" {
		written = ladder.Write(f.out, analysis, nil)
	}
	return errors.Join(written, a.printAffinity(analysis, f), damage)
}

// analyse analyses sources. For a damaged capture, it analyses the part before the damage.
func (a *app) analyse(ctx context.Context, given []string, f affinityFlags) (analysis *affinity.Analysis, damage, err error) {
	if f.delay < 0 || f.delay > time.Hour {
		return nil, nil, &vitrine.BadInput{File: "--delay", Found: f.delay.String(), Want: "want 0s to 1h"}
	}
	flows, captures, err := readSources(given)
	if err != nil {
		return nil, nil, err
	}
	if err := f.live.check(captures); err != nil {
		return nil, nil, err
	}
	if f.explain > 0 && len(captures) == 0 {
		return nil, nil, &vitrine.BadInput{File: "--explain", Found: "no capture is named", Want: "name the captures that have the message: vitrine affinity CAPTURE --messages numbers them"}
	}
	if f.pseudonymise != "" && len(captures) == 0 && !f.live.live() {
		return nil, nil, &vitrine.BadInput{File: "--pseudonymise", Found: "no capture is named", Want: "omit it, because call flows name no users"}
	}
	o := affinity.Options{Delay: f.delay, Apart: f.noMerge}
	if f.names != "" {
		if o.Names, err = affinity.LoadNames(f.names); err != nil {
			return nil, nil, err
		}
		if _, err := o.Names.Limits(); err != nil { // reads profiles
			return nil, nil, err
		}
	}
	if len(captures) > 0 || f.live.live() {
		if err := f.makeFolder(); err != nil {
			return nil, nil, err
		}
		if o.Captured, damage = a.readCaptures(ctx, captures, f); o.Captured == nil {
			return nil, nil, damage
		}
		return analyseCaptured(flows, o, damage)
	}
	analysis, err = affinity.Analyse(flows, o)
	return analysis, nil, err
}

// analyseCaptured analyses captures together with call flows. A capture may have taken hours, and only
// it tells which functions there are. So if it is not known what one of them needs of the host, or if
// call flows contradict the captures, the analysis leaves that out, and the error counts as damage.
func analyseCaptured(flows []*flow.Transaction, o affinity.Options, damage error) (analysis *affinity.Analysis, damaged, err error) {
	c := o.Captured
	all := slices.Concat(flows, c.Flows)
	analysis, err = affinity.Analyse(all, o)
	if wrong := err; wrong != nil {
		without := "the host"
		o.AnyHost = true
		if analysis, err = affinity.Analyse(all, o); err != nil {
			without = "the host and the call flows"
			analysis, err = affinity.Analyse(c.Flows, o)
		}
		if err != nil {
			return nil, nil, wrong
		}
		damage = errors.Join(damage, fmt.Errorf("analysed without %s: %w", without, wrong))
	}
	if damage != nil {
		c.Damage = strings.Split(damage.Error(), "\n")
	}
	return analysis, damage, nil
}

// makeFolder makes the folder of --out and the folder of its figures. It runs before the captures are
// read, which may take hours, so that a wrong folder is an error at once.
func (f *affinityFlags) makeFolder() error {
	if f.out == "" {
		return nil
	}
	if _, err := report.MakeFigureFolder(f.out); err != nil {
		return &vitrine.BadInput{File: "--out", Found: err.Error(), Want: "want a folder, which may be missing"}
	}
	return nil
}

// readCaptures finds the transactions in captures. With an error, it may also return the part that
// it has read.
func (a *app) readCaptures(ctx context.Context, captures []string, f affinityFlags) (*affinity.Captured, error) {
	read, err := f.reading()
	if err != nil {
		return nil, err
	}
	read.Progress = a.readProgress()
	divide := correlate.Options{MaxMemory: read.MaxMemory, Explain: f.explain}
	key, err := f.key()
	if err != nil {
		return nil, err
	}
	var c *affinity.Captured
	if f.live.live() {
		c, err = a.readLive(ctx, f.live, read, divide, key)
	} else {
		reading, end := untilPipeEnds(ctx, captures)
		defer end()
		c, err = affinity.ReadCaptures(reading, captures, read, divide, key)
	}
	switch {
	case errors.Is(err, context.Canceled), err != nil && c.Read.Captures.Frames == 0: // interrupted, or nothing was read
		return nil, err
	case f.explain > 0 && c.Explanation == nil:
		return nil, &vitrine.BadInput{File: "--explain", Found: fmt.Sprintf("no message %d", f.explain), Want: fmt.Sprintf("want 1 to %d: --messages numbers them", c.Read.Messages)}
	}
	return c, err
}

// untilPipeEnds returns a context for reading captures. The signal that interrupts this program usually
// also ends the program that writes to a pipe. So a pipe may be read a little longer, until its end.
func untilPipeEnds(ctx context.Context, captures []string) (reading context.Context, end func()) {
	const grace = 5 * time.Second
	isPipe := func(name string) bool {
		info, err := os.Stat(name)
		return err == nil && info.Mode()&os.ModeNamedPipe != 0
	}
	if !slices.ContainsFunc(captures, isPipe) {
		return ctx, func() {}
	}
	reading, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })
	return reading, func() {
		stop()
		cancel()
	}
}

// printAffinity prints the analysis, or the explanation of a message.
func (a *app) printAffinity(analysis *affinity.Analysis, f affinityFlags) error {
	switch {
	case f.explain > 0 && f.json:
		return printJSON(a.stdout, analysis.Captured.Explanation)
	case f.explain > 0:
		return ladder.Explain(a.stdout, analysis.Captured.Explanation)
	case f.json:
		return printJSON(a.stdout, analysis)
	}
	return ladder.Text(a.stdout, analysis)
}
