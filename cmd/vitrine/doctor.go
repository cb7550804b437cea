package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

func (a *app) doctorCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check what this host supports, and what is missing for the rest",
		Args:  args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			b, err := newBackends(nil, "", a.log())
			if err != nil {
				return err
			}
			found := b.checks(c.Context())
			if asJSON {
				return json.NewEncoder(a.stdout).Encode(found)
			}
			oneLine := strings.NewReplacer("\n", "; ")
			w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
			for _, f := range found {
				if f.OK {
					fmt.Fprintf(w, "ok\t%s\t%s\n", f.Name, oneLine.Replace(f.Detail))
				} else {
					fmt.Fprintf(w, "--\t%s\tmissing: %s\n", f.Name, oneLine.Replace(f.Missing))
				}
			}
			return w.Flush()
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return c
}
