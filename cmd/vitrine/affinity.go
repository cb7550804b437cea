package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"vitrine"
	"vitrine/affinity"
	"vitrine/affinity/flow"
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
}

func (a *app) affinityCommand() *cobra.Command {
	var f affinityFlags
	c := &cobra.Command{
		Use:   "affinity FLOW...",
		Short: "Find which functions belong together, from call flows",
		Long: "Reads call flows, says how many messages functions exchange in each type of\n" +
			"transaction and which of them are on the critical path, and decides which functions\n" +
			"share a host. FLOW is a call-flow file, or the name of a built-in flow or of a group\n" +
			"of them (see vitrine affinity flows). See docs/affinity.md.\n\n" +
			"With --messages it prints which messages packet captures have.",
		Example: "  vitrine affinity epc\n" +
			"  vitrine affinity ims-reference --no-merge --delay 10ms\n" +
			"  vitrine affinity epc/attach my.flow --names names.yaml --out runs/affinity\n" +
			"  vitrine affinity mme.pcap sgw.pcap.gz --messages",
		Args: args(cobra.MinimumNArgs(1)),
		RunE: func(c *cobra.Command, given []string) error {
			if f.messages {
				return a.messages(c.Context(), given, f)
			}
			return a.affinity(given, f)
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
	_ = c.MarkFlagFilename("names", "yaml", "yml", "json")
	_ = c.MarkFlagDirname("out")
	c.ValidArgsFunction = completeFlows(cobra.ShellCompDirectiveDefault)
	c.AddCommand(a.flowsCommand())
	return c
}

// completeFlows completes the names of built-in flows. rest says what else may follow.
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

func (a *app) affinity(given []string, f affinityFlags) error {
	if f.delay < 0 || f.delay > time.Hour {
		return &vitrine.BadInput{File: "--delay", Found: f.delay.String(), Want: "want 0s to 1h"}
	}
	flows, err := readFlows(given)
	if err != nil {
		return err
	}
	o := affinity.Options{Delay: f.delay, Apart: f.noMerge}
	if f.names != "" {
		if o.Names, err = affinity.LoadNames(f.names); err != nil {
			return err
		}
	}
	analysis, err := affinity.Analyse(flows, o)
	if err != nil {
		return err
	}
	if f.out != "" {
		if err := ladder.Write(f.out, analysis); err != nil {
			return err
		}
	}
	if f.json {
		text, err := analysis.JSON()
		if err == nil {
			_, err = a.stdout.Write(text)
		}
		return err
	}
	return ladder.Text(a.stdout, analysis)
}

// readFlows reads all arguments. All errors are reported together.
func readFlows(given []string) ([]*flow.Transaction, error) {
	var flows []*flow.Transaction
	var errs []error
	for _, name := range given {
		found, err := readSource(name)
		errs = append(errs, err)
		flows = append(flows, found...)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, t := range flows {
		if seen[t.Source] {
			return nil, &vitrine.BadInput{File: t.Source, Found: "named twice", Want: "name each flow once; count in a flow says how often it happens"}
		}
		seen[t.Source] = true
	}
	return flows, nil
}

// readSource reads one argument: a file, or else the built-in flows of that name.
func readSource(name string) ([]*flow.Transaction, error) {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return flow.Find(name)
	case info.IsDir():
		found, err := flow.Find(name)
		if err != nil {
			return nil, &vitrine.BadInput{File: name, Found: "a folder", Want: "name the call-flow files in it; built-in flows: " + strings.Join(flow.Groups(), ", ")}
		}
		return found, nil
	case !info.Mode().IsRegular():
		return nil, &vitrine.BadInput{File: name, Found: "no regular file", Want: "name a call-flow file"}
	}
	kind, err := captureKind(name)
	switch {
	case err != nil:
		return nil, &vitrine.BadInput{File: name, Found: err.Error(), Want: "name a call-flow file that can be read"}
	case kind != "":
		return nil, &vitrine.BadInput{File: name, Found: "a " + kind + " capture", Want: "captures are not analysed yet: see what is in it with --messages; or name call-flow files (docs/affinity.md) or built-in flows: " + strings.Join(flow.Groups(), ", ")}
	}
	t, err := flow.Read(name)
	if err != nil {
		return nil, err
	}
	return []*flow.Transaction{t}, nil
}

// captureKind returns the kind of a capture of packets by its first octets, or "" if the file
// is none: pcap (draft-ietf-opsawg-pcap), with time stamps in µs or ns, or pcapng
// (draft-ietf-opsawg-pcapng).
func captureKind(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close() // opened read-only
	head := make([]byte, 4)
	n, err := io.ReadFull(file, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return "", err
	}
	if n < len(head) {
		return "", nil
	}
	if bytes.Equal(head, []byte{0x0a, 0x0d, 0x0d, 0x0a}) {
		return "pcapng", nil
	}
	for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		if magic := order.Uint32(head); magic == 0xa1b2c3d4 || magic == 0xa1b23c4d {
			return "pcap", nil
		}
	}
	return "", nil
}
