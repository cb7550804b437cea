package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"vitrine"
	"vitrine/flex"
	"vitrine/flex/config"
	"vitrine/flex/hold"
	"vitrine/flex/policy"
	"vitrine/flex/unit"
	"vitrine/internal/access"
	"vitrine/internal/runstate"
)

func (a *app) flexCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "flex",
		Short: "Run as many instances of aggregates as the load needs",
		Long: "The orchestrator starts and stops instances of aggregates by the load at the directors,\n" +
			"the capacity of an instance, and the time of a start. See docs/flex.md.",
		Args: checkVerb,
		RunE: showHelp,
	}
	c.AddCommand(a.flexRun(), a.flexHold(), a.flexStatus(), a.flexExplain(), a.flexDrain(), a.flexStop(), a.flexProfile(), a.flexSimulate())
	for _, verb := range c.Commands() {
		verb.ValidArgsFunction = completeFlex
	}
	return c
}

// completeFlex completes the file, and then the names of running instances and, for
// explain, of types.
func completeFlex(c *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(given) == 0 {
		return []string{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt
	}
	if len(given) > 1 || c.Name() != "drain" && c.Name() != "explain" {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	k, err := dialFlex(given[0])
	var s flex.Status
	if err == nil {
		err = k.call(c.Context(), http.MethodGet, "/v1/status", &s)
	}
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, in := range s.Instances {
		names = append(names, in.Name)
	}
	if c.Name() == "explain" {
		for _, t := range s.Types {
			names = append(names, t.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// flexSocket returns the unix socket of the orchestrator that uses a state folder.
func flexSocket(state string) string {
	sum := sha256.Sum256([]byte(state))
	return filepath.Join(runstate.DefaultRoot(), "flex", hex.EncodeToString(sum[:8])+".sock")
}

// A flexClient calls the orchestrator that runs a file.
type flexClient struct {
	file   *config.Config
	root   string // folder of runs that has the socket
	caller access.Caller
}

func dialFlex(path string) (*flexClient, error) {
	c, err := config.Load(path, knownBackends())
	if err != nil {
		return nil, err
	}
	return &flexClient{file: c, root: runstate.DefaultRoot(), caller: access.Caller{
		Service: "the orchestrator", HTTP: &http.Client{Timeout: 10 * time.Second, Transport: access.BySocket(flexSocket(c.State))}, Most: 64 << 20,
	}}, nil
}

// errNoOrchestrator is the error for a file that no orchestrator runs.
var errNoOrchestrator = errors.New("no orchestrator runs it")

// call sends a request and reads the answer into out, which may be nil.
func (k *flexClient) call(ctx context.Context, method, path string, out any) error {
	if err := runstate.Private(k.root); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err // the socket may be another user's
	}
	err := k.caller.Call(ctx, method, "http://flex"+path, nil, out)
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		return fmt.Errorf("%s: %w", k.file.Path, errNoOrchestrator)
	}
	return err
}

func jsonFlag(c *cobra.Command, into *bool) *cobra.Command {
	c.Flags().BoolVar(into, "json", false, "print JSON")
	return c
}

func (a *app) flexStatus() *cobra.Command {
	asJSON := false
	return jsonFlag(&cobra.Command{
		Use:   "status FILE",
		Short: "Print the running instances and their load",
		Args:  args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, given []string) error {
			k, err := dialFlex(given[0])
			if err != nil {
				return err
			}
			var s flex.Status
			err = k.call(c.Context(), http.MethodGet, "/v1/status", &s)
			if errors.Is(err, errNoOrchestrator) {
				return a.held(c.Context(), k.file, err, asJSON)
			}
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(a.stdout, s)
			}
			return printFlex(a.stdout, s)
		},
	}, &asJSON)
}

// held prints what the holder runs when there is no orchestrator. missing is the error for the
// missing orchestrator.
func (a *app) held(ctx context.Context, c *config.Config, missing error, asJSON bool) error {
	h, err := hold.Find(ctx, c.State)
	if errors.Is(err, hold.ErrNone) {
		return fmt.Errorf("%w, and no instance of it runs: start it with vitrine flex run", missing)
	}
	if err != nil {
		return err
	}
	all, err := h.Units(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(a.stdout, struct {
			Holder hold.About  `json:"holder"`
			Units  []unit.Unit `json:"units"`
		}{h.About, all})
	}
	fmt.Fprintf(a.stdout, "%s: no orchestrator; run %s, pid %d, holds what runs, and nothing is scaled\n", c.Path, h.About.Run, h.About.PID)
	t := tabwriter.NewWriter(a.stdout, 0, 4, 2, ' ', 0)
	for _, u := range all {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", u.Name, u.Size, u.State, u.Address)
	}
	return t.Flush()
}

// printFlex prints a status as tables.
func printFlex(w io.Writer, s flex.Status) error {
	if s.Policy != "" && s.Policy != policy.Flex {
		fmt.Fprintf(w, "policy %s decides, for a comparison\n", s.Policy)
	}
	for _, what := range s.Away {
		fmt.Fprintln(w, "away:", what)
	}
	if len(s.StorePast) > 0 {
		fmt.Fprintln(w, "the store is past its threshold:", strings.Join(s.StorePast, ", "))
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, service := range s.Services {
		state := string(service.State)
		if service.Outdated {
			state += ", started with another version of the file"
		}
		if service.Reason != "" {
			state += ": " + service.Reason
		}
		fmt.Fprintf(t, "service %s\t%s\n", service.Name, state)
	}
	fmt.Fprintln(t, "TYPE\tRATE\tREFUSED\tCAPACITY\tP99\tSUCCESS\tACTIVE\tMIN-MAX\tREDLINE")
	for _, y := range s.Types {
		rate, refused, p99, success := "unknown", "-", "-", "-"
		if y.Known {
			rate, refused = fmt.Sprintf("%.1f/s", y.Rate), fmt.Sprintf("%.1f/s", y.Refused)
			p99, success = fmt.Sprintf("%.1fms", y.P99*1000), fmt.Sprintf("%.4f", y.Success)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%.1f/s\t%s\t%s\t%d\t%d-%d\t%s\n", y.Name, rate, refused, y.Capacity, p99, success, y.Instances["active"], y.Min, y.Max, redlineCell(y.Redline))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	t = tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "INSTANCE\tSIZE\tSTATE\tFOR\tADDRESS\tRATE\tIN FLIGHT\tCPU")
	for _, in := range s.Instances {
		rate, inFlight, cpu := "-", "-", "-"
		if in.Known {
			rate, inFlight = fmt.Sprintf("%.1f/s", in.Rate), fmt.Sprint(in.InFlight)
		}
		if in.CPU != nil {
			cpu = fmt.Sprintf("%.0f%%", *in.CPU*100)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%.0fs\t%s\t%s\t%s\t%s\n", in.Name, in.Size, in.State, in.InState, in.Address, rate, inFlight, cpu)
	}
	return t.Flush()
}

func (a *app) flexExplain() *cobra.Command {
	asJSON := false
	return jsonFlag(&cobra.Command{
		Use:   "explain FILE TYPE|INSTANCE",
		Short: "Explain why a type has the instances that it has, or why an instance is in its state",
		Args:  args(cobra.ExactArgs(2)),
		RunE: func(c *cobra.Command, given []string) error {
			k, err := dialFlex(given[0])
			if err != nil {
				return err
			}
			var e flex.Explanation
			if err := k.call(c.Context(), http.MethodGet, "/v1/explain/"+url.PathEscape(given[1]), &e); err != nil {
				return err
			}
			if asJSON {
				return printJSON(a.stdout, e)
			}
			return printExplanation(a.stdout, e)
		},
	}, &asJSON)
}

func printExplanation(w io.Writer, e flex.Explanation) error {
	for _, what := range e.Away {
		fmt.Fprintln(w, "away:", what)
	}
	if y := e.Type; y != nil {
		arrives := "the rate is unknown"
		if y.Known {
			arrives = fmt.Sprintf("%.1f/s arrive", y.Rate)
		}
		fmt.Fprintf(w, "%s: %s, active instances carry %.1f/s\n", y.Name, arrives, y.Capacity)
		if len(y.Why) == 0 {
			fmt.Fprintln(w, "- nothing to do")
		}
		for _, why := range y.Why {
			fmt.Fprintln(w, "-", why)
		}
		printRedline(w, y.Redline)
	}
	if in := e.Instance; in != nil {
		fmt.Fprintf(w, "%s: %s for %.0f s\n", in.Name, in.State, in.InState)
		if in.Reason != "" {
			fmt.Fprintln(w, "- it failed:", in.Reason)
		}
		for _, m := range in.Members {
			fmt.Fprintf(w, "- %s, pid %d\n", m.Name, m.PID)
		}
	}
	for _, event := range e.Events {
		if _, err := fmt.Fprintf(w, "%s  %-8s %s  %s\n", event.At.Local().Format(time.DateTime), event.Kind, event.Instance, event.Reason); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) flexDrain() *cobra.Command {
	asJSON := false
	return jsonFlag(&cobra.Command{
		Use:   "drain FILE INSTANCE",
		Short: "Drain an instance and then stop it; another one takes its place if it is needed",
		Args:  args(cobra.ExactArgs(2)),
		RunE: func(c *cobra.Command, given []string) error {
			k, err := dialFlex(given[0])
			if err != nil {
				return err
			}
			var got map[string]string
			if err := k.call(c.Context(), http.MethodPost, "/v1/instances/"+url.PathEscape(given[1])+"/drain", &got); err != nil {
				return err
			}
			if asJSON {
				return printJSON(a.stdout, got)
			}
			_, err = fmt.Fprintf(a.stdout, "%s: draining\n", given[1])
			return err
		},
	}, &asJSON)
}

func (a *app) flexStop() *cobra.Command {
	asJSON := false
	return jsonFlag(&cobra.Command{
		Use:   "stop FILE",
		Short: "Stop instances and services that run without an orchestrator",
		Long: "Stop the instances and services of a file that run without an orchestrator: after it\n" +
			"was killed, or ended with --keep. The instances leave the directors first. Transactions in\n" +
			"flight are lost.",
		Args: args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, given []string) error {
			file, err := config.Load(given[0], knownBackends())
			if err != nil {
				return err
			}
			if _, err := os.Stat(file.State); err != nil {
				return fmt.Errorf("%s: nothing of it runs", file.Path)
			}
			lock, err := lockFlex(file)
			if err != nil {
				return err
			}
			defer lock.Close() // nothing was written
			h, err := hold.Find(c.Context(), file.State)
			if errors.Is(err, hold.ErrNone) {
				return fmt.Errorf("%s: nothing of it runs", file.Path)
			}
			if h == nil { // with an error, there is a client of a holder of another version
				return err
			}
			a.leaveDirectors(c.Context(), file, h)
			if err := endHolder(c.Context(), file, h); err != nil {
				return err
			}
			if asJSON {
				return printJSON(a.stdout, map[string]string{"stopped": h.About.Run})
			}
			_, err = fmt.Fprintf(a.stdout, "%s: stopped run %s\n", file.Path, h.About.Run)
			return err
		},
	}, &asJSON)
}

// lockFlex creates the state folder and locks it, so that only one orchestrator uses
// it. It refuses a folder of another user, who could name a holder and instances there.
func lockFlex(c *config.Config) (*os.File, error) {
	if err := os.MkdirAll(c.State, 0o700); err != nil {
		return nil, fmt.Errorf("make the state folder: %w", err)
	}
	if err := runstate.PrivateFolder(c.State); err != nil {
		return nil, fmt.Errorf("the state folder: %w", err)
	}
	lock, err := runstate.LockFile(filepath.Join(c.State, "lock"), runstate.Owner{PID: os.Getpid(), Command: os.Args})
	if busy, ok := errors.AsType[*runstate.BusyError](err); ok {
		return nil, &vitrine.Unsupported{
			What: "a second orchestrator of " + c.Path, Missing: fmt.Sprintf("the first one uses its state folder: pid %d, %q", busy.Owner.PID, busy.Owner.Command),
			Do: "end the first one, or use another file, with another state folder and other directors",
		}
	}
	return lock, err
}
