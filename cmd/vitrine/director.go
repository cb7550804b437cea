package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"vitrine"
	"vitrine/director"
	"vitrine/director/client"
	"vitrine/flex/hold"
)

// A directorControl holds the flags of all verbs that control a director.
type directorControl struct {
	*app
	access client.Access
	json   bool
}

func (a *app) directorCommand() *cobra.Command {
	k := &directorControl{app: a}
	c := &cobra.Command{
		Use:   "director",
		Short: "Steer transactions to the instances of aggregates, and control a running director",
		Long: "The director stands in front of aggregates of functions. It classifies each SIP, GTP-C\n" +
			"or S1AP message by its type of transaction, picks an instance of the aggregate that\n" +
			"serves it and keeps the whole transaction there. See docs/director.md.",
		Args: checkVerb,
		RunE: showHelp,
	}
	f := c.PersistentFlags()
	f.StringVar(&k.access.URL, "director", "", "the director's control address (beyond loopback: https://ADDRESS:PORT), or unix:SOCKET; without it, the\n"+
		"one director that this user runs here, or else "+defaultControl)
	k.credentials(f)
	f.BoolVar(&k.json, "json", false, "print JSON")
	c.AddCommand(askNobody(a.directorRun()), askNobody(a.directorCheck()), askNobody(a.directorSchema()))
	c.AddCommand(k.status(), k.explain(), k.instances(), k.leases(), k.rules(), k.reload(), k.restart())
	return c
}

// askNobody makes a command refuse the flags of the commands that ask a running director.
func askNobody(c *cobra.Command) *cobra.Command {
	c.PreRunE = func(c *cobra.Command, _ []string) (err error) {
		c.Parent().PersistentFlags().VisitAll(func(f *pflag.Flag) {
			if f.Changed && err == nil {
				err = &vitrine.BadInput{File: "--" + f.Name, Found: "a flag of the commands that ask a running director",
					Want: "leave it out; the section control of the file says who may use the director"}
			}
		})
		return err
	}
	return c
}

// credentials adds the flags with the credentials for a director.
func (k *directorControl) credentials(f *pflag.FlagSet) {
	f.StringVar(&k.access.TokenFile, "token-file", "", "file with the token to send, on the first line that is not empty and not a # comment")
	f.StringVar(&k.access.Authorities, "ca", "", "PEM file of the authorities that certify the director")
	f.StringVar(&k.access.Certificate, "cert", "", "PEM file of the client certificate")
	f.StringVar(&k.access.Key, "key", "", "PEM file of the certificate's key")
}

func (a *app) directorRun() *cobra.Command {
	var pidFile string
	c := &cobra.Command{
		Use:   "run FILE",
		Short: "Run a director with a configuration file; SIGHUP reloads the file, SIGUSR2 hands over to a new process",
		Args:  args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, given []string) error {
			clock, err := director.HostClock()
			if err != nil {
				return err
			}
			handover, err := director.NewHandover(pidFile)
			if err != nil {
				return err
			}
			supervisor := ""
			if os.Getenv(hold.ServiceVariable) != "" {
				supervisor = "vitrine flex"
			}
			reload, restart, stop := serviceSignals()
			defer stop()
			d, err := director.New(c.Context(), director.Options{
				Path: given[0], Clock: clock, Log: a.logFrom(slog.LevelInfo), Version: toolVersion(),
				Reload: reload, Restart: restart, Handover: handover, Supervisor: supervisor,
			})
			if err != nil {
				return err
			}
			err = d.Run(c.Context())
			if closing := d.Close(); err == nil {
				err = closing
			}
			return err
		},
	}
	c.Flags().StringVar(&pidFile, "pid-file", "", "file for the PID of the serving process")
	return c
}

func (a *app) directorCheck() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE",
		Short: "Check a configuration file without running it",
		Args:  args(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, given []string) error {
			c, err := director.Load(given[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.stdout, "%s: good: %d types, %d rules, %d instances\n", given[0], len(c.Types), len(c.Rules), len(c.Instances))
			return err
		},
	}
}

func (a *app) directorSchema() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the configuration file",
		Args:  args(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			_, err := a.stdout.Write(director.Schema())
			return err
		},
	}
}

// defaultControl is the control address of a director if no other is known.
const defaultControl = "http://127.0.0.1:8090"

// find returns the director's address if the user did not name one.
func (k *directorControl) find(ctx context.Context) (string, error) {
	if k.access.TokenFile != "" || k.access.Certificate != "" {
		return "", &vitrine.BadInput{File: "--director", Found: "credentials without an address", Want: "name the director that they are for, such as --director " + defaultControl}
	}
	switch all := client.Sockets(ctx); len(all) {
	case 0:
		return defaultControl, nil
	case 1:
		return "unix:" + all[0], nil
	default:
		return "", &vitrine.BadInput{File: "--director", Found: fmt.Sprintf("%d directors run here", len(all)), Want: "name one: --director unix:" + strings.Join(all, " or unix:")}
	}
}

// client connects to the director.
func (k *directorControl) client(ctx context.Context) (*client.Client, error) {
	if k.access.URL == "" {
		var err error
		if k.access.URL, err = k.find(ctx); err != nil {
			return nil, err
		}
	}
	return client.New(k.access)
}

// requestCommand returns a command that sends a request to a director and shows the answer.
func requestCommand[T any](k *directorControl, use, short string, count cobra.PositionalArgs, do func(context.Context, *client.Client, []string) (T, error), show func(io.Writer, T) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: args(count),
		RunE: func(c *cobra.Command, given []string) error {
			to, err := k.client(c.Context())
			if err != nil {
				return err
			}
			got, err := do(c.Context(), to, given)
			if err != nil {
				return err
			}
			if k.json {
				return printJSON(k.stdout, got)
			}
			return show(k.stdout, got)
		},
	}
}

func (k *directorControl) status() *cobra.Command {
	return requestCommand(k, "status", "Print a director's epoch, addresses and counts", cobra.NoArgs,
		func(ctx context.Context, c *client.Client, _ []string) (client.Status, error) { return c.Status(ctx) },
		func(w io.Writer, s client.Status) error {
			t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
			fmt.Fprintf(t, "epoch\t%d, since %.1fs, table %s\n", s.Epoch, s.Changed, s.Digest)
			if s.InTransition {
				fmt.Fprintf(t, "transition\tfor %.1fs more\n", s.Transition-s.Changed)
			}
			if s.Pending {
				fmt.Fprintln(t, "pending\tchanges wait for the next epoch")
			}
			if s.Restarted {
				fmt.Fprintln(t, "restarted\tin a transition: moved keys that it does not remember go by the previous epoch")
			}
			fmt.Fprintf(t, "types\t%s\n", strings.Join(s.Types, " "))
			if len(s.Panic) > 0 {
				fmt.Fprintf(t, "panic\t%s: all instances count as up, because checks of too many fail\n", strings.Join(s.Panic, " "))
			}
			fmt.Fprintf(t, "listens\t%s\n", strings.Join(slices.Concat(s.SIP, s.GTPC, s.S1AP), " "))
			fmt.Fprintf(t, "version\t%s\n", s.Version)
			n := s.Steering
			fmt.Fprintf(t, "steered\tkept %d, moved %d (gone %d), unknown %d, forgotten %d, none %d\n", n.Kept, n.Moved, n.Gone, n.Unknown, n.Forgotten, n.None)
			if s.Reload != nil && s.Reload.Error != "" {
				fmt.Fprintf(t, "reload\tfailed at %s: %s\n", s.Reload.At.Local().Format(time.DateTime), s.Reload.Error)
			}
			if s.Restart != nil {
				fmt.Fprintf(t, "restart\tfailed at %s: %s\n", s.Restart.At.Local().Format(time.DateTime), s.Restart.Error)
			}
			if s.Unsaved != "" {
				fmt.Fprintf(t, "state\tnot saved: %s\n", s.Unsaved)
			}
			return t.Flush()
		})
}

func (k *directorControl) explain() *cobra.Command {
	var q client.Question
	c := requestCommand(k, "explain [FILE|-]", "Explain where a message goes: a message from a file, or a type and a key", cobra.MaximumNArgs(1),
		func(ctx context.Context, c *client.Client, given []string) (e client.Explanation, err error) {
			if len(given) == 1 {
				if q.Message, err = readMessage(given[0]); err != nil {
					return e, err
				}
			}
			return c.Explain(ctx, q)
		},
		func(w io.Writer, e client.Explanation) error {
			for _, step := range e.Steps {
				fmt.Fprintln(w, "-", step)
			}
			where := "nowhere"
			if e.Address != "" {
				where = strings.TrimSpace(e.Instance + " at " + e.Address)
			}
			_, err := fmt.Fprintf(w, "=> %s (epoch %d)\n", strings.TrimPrefix(where, "at "), e.Epoch)
			return err
		})
	c.Flags().StringVar(&q.Type, "type", "", "aggregate type, when there is no message")
	c.Flags().StringVar(&q.Key, "steer-by", "", "Call-ID, IMSI or other key, when there is no message")
	c.Flags().StringVar(&q.From, "from", "", "the sender's address and port")
	c.Flags().StringVar(&q.Region, "region", "", "the client's region")
	return c
}

// readMessage reads a message in wire format. A text file with a SIP message may
// have line ends without carriage returns.
func readMessage(path string) (text []byte, err error) {
	if path == "-" {
		text, err = io.ReadAll(io.LimitReader(os.Stdin, 1<<20))
	} else {
		text, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, &vitrine.BadInput{File: path, Found: err.Error(), Want: "want a file with a message, or - for standard input"}
	}
	// The first octet of GTP-C can also be a capital letter. But its third octet is the high byte
	// of the length, which is below ' ' in messages shorter than 8 KiB.
	if s := string(text); len(s) > 8 && s[0] >= 'A' && s[0] <= 'Z' && s[2] >= ' ' && !strings.Contains(s, "\r\n") {
		text = []byte(strings.ReplaceAll(s, "\n", "\r\n"))
	}
	return text, nil
}

func (k *directorControl) instances() *cobra.Command {
	c := &cobra.Command{
		Use: "instances", Aliases: []string{"instance"}, Short: "List and change the instances of aggregates",
		Args: checkVerb,
		RunE: showHelp,
	}
	list := requestCommand(k, "list", "List the instances with their health and counts", cobra.NoArgs,
		func(ctx context.Context, c *client.Client, _ []string) ([]client.Instance, error) {
			return c.Instances(ctx)
		}, printInstances)
	list.Aliases = []string{"ls"}
	change := client.Change{}
	var weight float64
	var state, region string
	var set *cobra.Command
	set = requestCommand(k, "set NAME", "Change an instance's weight, state or region", cobra.ExactArgs(1),
		func(ctx context.Context, c *client.Client, given []string) (client.Instance, error) {
			if set.Flags().Changed("weight") {
				change.Weight = &weight
			}
			if set.Flags().Changed("region") {
				change.Region = &region
			}
			if set.Flags().Changed("state") {
				change.State = new(vitrine.State)
				if err := change.State.UnmarshalText([]byte(state)); err != nil {
					return client.Instance{}, &vitrine.BadInput{File: "--state", Found: err.Error()}
				}
			}
			return alterInstance(ctx, c, given[0], change)
		}, printInstance)
	set.Flags().Float64Var(&weight, "weight", 0, "its capacity")
	set.Flags().StringVar(&state, "state", "", "one of "+strings.Join(vitrine.States(), ", "))
	set.Flags().StringVar(&region, "region", "", "region of the instance")
	drain := requestCommand(k, "drain NAME", "Drain an instance: it finishes its transactions and gets no new ones", cobra.ExactArgs(1),
		func(ctx context.Context, c *client.Client, given []string) (client.Instance, error) {
			draining := vitrine.Draining
			return alterInstance(ctx, c, given[0], client.Change{State: &draining})
		}, printInstance)
	remove := requestCommand(k, "remove NAME", "Take an instance out of the table", cobra.ExactArgs(1),
		func(ctx context.Context, c *client.Client, given []string) (map[string]string, error) {
			return map[string]string{"removed": given[0]}, c.Remove(ctx, given[0])
		},
		func(w io.Writer, got map[string]string) error {
			_, err := fmt.Fprintf(w, "%s: removed\n", got["removed"])
			return err
		})
	for _, named := range []*cobra.Command{set, drain, remove} {
		named.ValidArgsFunction = k.completeInstance
	}
	c.AddCommand(list, k.add(), set, drain, remove)
	return c
}

// completeInstance completes the name of an instance of the running director.
func (k *directorControl) completeInstance(c *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(given) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var all []client.Instance
	to, err := k.client(c.Context())
	if err == nil {
		all, err = to.Instances(c.Context())
	}
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, in := range all {
		names = append(names, in.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// alterInstance changes an instance and returns it with its counts, which the answer to a change
// does not have.
func alterInstance(ctx context.Context, c *client.Client, name string, change client.Change) (client.Instance, error) {
	changed, err := c.Alter(ctx, name, change)
	if err != nil {
		return client.Instance{}, err
	}
	counted, err := c.Instance(ctx, name)
	counted.Instance = changed
	return counted, err
}

func (k *directorControl) add() *cobra.Command {
	var in vitrine.Instance
	var state string
	c := requestCommand(k, "add NAME TYPE ADDRESS", "Add an instance, or replace the instance with that name", cobra.ExactArgs(3),
		func(ctx context.Context, c *client.Client, given []string) (none client.Instance, err error) {
			address, err := netip.ParseAddrPort(given[2])
			if err != nil {
				return none, &vitrine.BadInput{File: "ADDRESS", Found: given[2], Want: "want an IP address and a port"}
			}
			if !(in.Weight > 0) { // Put leaves 0 out, and the director would give the instance its default
				return none, &vitrine.BadInput{File: "--weight", Found: fmt.Sprint(in.Weight), Want: "want a number above 0; to send it nothing new, set its state to draining"}
			}
			in.Name, in.Type, in.Address = given[0], given[1], address
			if err := in.State.UnmarshalText([]byte(state)); err != nil {
				return none, &vitrine.BadInput{File: "--state", Found: err.Error()}
			}
			return c.Put(ctx, in)
		}, printInstance)
	c.Flags().Float64Var(&in.Weight, "weight", 1, "its capacity")
	c.Flags().StringVar(&state, "state", "active", "one of "+strings.Join(vitrine.States(), ", "))
	c.Flags().StringVar(&in.Region, "region", "", "region of the instance")
	c.Flags().Uint16Var(&in.ID, "id", 0, "number of the instance within the type; 0: derive it from the name")
	return c
}

func printInstance(w io.Writer, in client.Instance) error {
	return printInstances(w, []client.Instance{in})
}

// printInstances prints instances as a table.
func printInstances(w io.Writer, all []client.Instance) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tTYPE\tADDRESS\tWEIGHT\tSTATE\tHEALTH\tREGION\tID\tTRANSACTIONS\tIN FLIGHT\tDIALOGS\tQUIET\tLATENCY")
	for _, in := range all {
		state := in.State.String()
		if in.Drained {
			state = "drained"
		}
		weight := strconv.FormatFloat(in.Weight, 'g', -1, 64)
		if in.Leased != nil {
			weight += " leased:" + strconv.FormatFloat(*in.Leased, 'g', -1, 64)
		}
		quiet := "-"
		if in.Quiet {
			quiet = "yes"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%s\t%.1fms\n", in.Name, in.Type, in.Address, weight,
			state, in.Health, cmp.Or(in.Region, "-"), in.ID, in.Transactions, in.InFlight, in.Dialogs, quiet, in.Latency*1000)
	}
	return t.Flush()
}

func (k *directorControl) rules() *cobra.Command {
	return requestCommand(k, "rules", "List the rules", cobra.NoArgs,
		func(ctx context.Context, c *client.Client, _ []string) ([]client.Rule, error) { return c.Rules(ctx) },
		func(w io.Writer, rules []client.Rule) error {
			t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
			for i, r := range rules {
				fmt.Fprintf(t, "%d\t%s\t%s\n", i+1, ruleCell(r), r.Type)
			}
			return t.Flush()
		})
}

// ruleCell says which messages a rule is for, and the field to steer by if the rule has one.
func ruleCell(r client.Rule) string {
	what := []string{r.Method, r.Event, r.Message, r.Interface}
	if r.Relocation {
		what = append(what, "relocation")
	}
	if r.Cause != "" {
		what = append(what, "cause: "+r.Cause)
	}
	cell := cmp.Or(strings.Join(slices.DeleteFunc(what, func(s string) bool { return s == "" }), " "), "anything else")
	if r.Key != "" {
		cell += ", key: " + r.Key
	}
	return cell
}

func (k *directorControl) reload() *cobra.Command {
	return requestCommand(k, "reload", "Read the configuration file again", cobra.NoArgs,
		func(ctx context.Context, c *client.Client, _ []string) (map[string]string, error) {
			return map[string]string{"state": "reloaded"}, c.Reload(ctx)
		}, func(w io.Writer, got map[string]string) error {
			_, err := fmt.Fprintln(w, got["state"])
			return err
		})
}
