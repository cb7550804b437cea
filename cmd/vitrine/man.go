package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// manCommand returns the command that writes manual pages. It generates them from this
// program's own commands, like the completions.
func (a *app) manCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "man FOLDER",
		Short: "Write the manual pages of all verbs into an existing folder",
		Args:  args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, given []string) error {
			root := c.Root()
			root.DisableAutoGenTag = true
			if err := doc.GenManTree(root, &doc.GenManHeader{Source: "Vitrine " + toolVersion(), Manual: "Vitrine"}, given[0]); err != nil {
				return fmt.Errorf("writing manual pages: %w", err)
			}
			return nil
		},
	}
}
