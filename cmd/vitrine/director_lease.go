package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"vitrine"
	"vitrine/director/client"
)

func (k *directorControl) leases() *cobra.Command {
	c := &cobra.Command{
		Use: "leases", Aliases: []string{"lease"}, Short: "Overlay the weights of a type's instances for a time",
		Args: checkVerb,
		RunE: showHelp,
	}
	list := requestCommand(k, "list", "List the leases that are held", cobra.NoArgs,
		func(ctx context.Context, c *client.Client, _ []string) ([]client.Lease, error) {
			return c.Leases(ctx)
		}, printLeases)
	list.Aliases = []string{"ls"}
	show := requestCommand(k, "show TYPE", "Show the lease of a type, or the last token if nobody holds it", cobra.ExactArgs(1),
		func(ctx context.Context, c *client.Client, given []string) (client.Lease, error) {
			return c.Lease(ctx, given[0])
		}, printLease)
	release := requestCommand(k, "release TYPE TOKEN", "End a lease and restore the base weights", cobra.ExactArgs(2),
		func(ctx context.Context, c *client.Client, given []string) (l client.Lease, err error) {
			token, err := parseToken(given[1])
			if err != nil {
				return l, err
			}
			return c.Release(ctx, given[0], token)
		}, printLease)
	c.AddCommand(list, show, k.acquireLease(), k.renewLease(), release)
	return c
}

func (k *directorControl) acquireLease() *cobra.Command {
	var weights []string
	var ttl time.Duration
	q := client.LeaseRequest{}
	c := requestCommand(k, "acquire TYPE", "Take the lease of a type", cobra.ExactArgs(1),
		func(ctx context.Context, c *client.Client, given []string) (l client.Lease, err error) {
			if q.Weights, err = parseWeights(weights); err != nil {
				return l, err
			}
			q.TTL = ttl.Seconds()
			return c.Acquire(ctx, given[0], q)
		}, printLease)
	host, _ := os.Hostname() // for people to read; --holder sets another name
	c.Flags().StringVar(&q.Holder, "holder", cmp.Or(host, "cli"), "name of the holder")
	c.Flags().DurationVar(&ttl, "ttl", time.Minute, "time until the lease ends, unless it is renewed")
	c.Flags().Uint64Var(&q.Token, "token", 0, "the token that another director of the same instances returned; 0: the next token")
	c.Flags().StringArrayVar(&weights, "weight", nil, "INSTANCE=WEIGHT in place of the instance's own; 0: no new work; repeat it for several")
	return c
}

func (k *directorControl) renewLease() *cobra.Command {
	var weights []string
	var ttl time.Duration
	var none bool
	c := requestCommand(k, "renew TYPE TOKEN", "Prolong a lease, and change its weights if any are given", cobra.ExactArgs(2),
		func(ctx context.Context, c *client.Client, given []string) (l client.Lease, err error) {
			token, err := parseToken(given[1])
			if err != nil {
				return l, err
			}
			change := client.LeaseChange{TTL: ttl.Seconds()}
			if change.Weights, err = parseWeights(weights); err != nil {
				return l, err
			}
			if none {
				change.Weights = map[string]float64{}
			}
			return c.Renew(ctx, given[0], token, change)
		}, printLease)
	c.Flags().DurationVar(&ttl, "ttl", 0, "time until the lease ends; 0: as before")
	c.Flags().StringArrayVar(&weights, "weight", nil, "INSTANCE=WEIGHT; all leased weights are replaced")
	c.Flags().BoolVar(&none, "base", false, "go back to the base weights and keep the lease")
	c.MarkFlagsMutuallyExclusive("weight", "base")
	return c
}

func parseToken(text string) (uint64, error) {
	token, err := strconv.ParseUint(text, 10, 64)
	if err != nil || token == 0 {
		return 0, &vitrine.BadInput{File: "TOKEN", Found: text, Want: "want the number that acquire printed"}
	}
	return token, nil
}

// parseWeights reads INSTANCE=WEIGHT. It returns nil if there are none.
func parseWeights(given []string) (map[string]float64, error) {
	if len(given) == 0 {
		return nil, nil
	}
	weights := map[string]float64{}
	for _, text := range given {
		name, number, ok := strings.Cut(text, "=")
		w, err := strconv.ParseFloat(number, 64)
		if !ok || err != nil || name == "" {
			return nil, &vitrine.BadInput{File: "--weight", Found: text, Want: "want INSTANCE=WEIGHT, such as reg-1=150"}
		}
		weights[name] = w
	}
	return weights, nil
}

func printLease(w io.Writer, l client.Lease) error { return printLeases(w, []client.Lease{l}) }

func printLeases(w io.Writer, all []client.Lease) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "TYPE\tTOKEN\tHOLDER\tLEFT\tWEIGHTS")
	for _, l := range all {
		var weights []string
		for _, name := range slices.Sorted(maps.Keys(l.Weights)) {
			weights = append(weights, name+"="+strconv.FormatFloat(l.Weights[name], 'g', -1, 64))
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%.1fs\t%s\n", l.Type, l.Token, cmp.Or(l.Holder, "-"), l.Left, cmp.Or(strings.Join(weights, " "), "-"))
	}
	return t.Flush()
}
