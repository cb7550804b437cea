package main

import (
	"encoding/json"
	"errors"

	"github.com/spf13/cobra"

	"vitrine"
	"vitrine/measure"
	"vitrine/measure/chain"
	"vitrine/report"
	"vitrine/result"
)

func (a *app) reportCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "report DIR",
		Short: "Print the results of a run, and write its report and figures again",
		Args:  args(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, given []string) error {
			data, err := loadRun(given[0])
			if err != nil {
				return err
			}
			if asJSON {
				return a.printResults(data)
			}
			written := report.Write(data.Dir, data) // fails in an archive that cannot be written to
			return errors.Join(report.Text(a.stdout, data), written)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the results as JSON, as the verb that measured them does with --json, and write nothing")
	return c
}

// printResults prints the results of a run as JSON.
func (a *app) printResults(data *result.Data) error {
	var found any = data.Summary
	var err error
	switch {
	case data.Manifest.Measures(measure.Kind):
		found, err = measure.Read(data)
	case data.Manifest.Measures(chain.Kind):
		found, err = chain.Read(data)
	case data.Summary == nil:
		err = &vitrine.BadInput{File: data.Dir, Found: "no summary.json: the run is not finished", Want: "continue it with --resume"}
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(a.stdout).Encode(found)
}

func (a *app) compareCommand() *cobra.Command {
	var out string
	var asJSON bool
	c := &cobra.Command{
		Use:   "compare DIR...",
		Short: "Compare the sizes of several runs",
		Args:  args(cobra.MinimumNArgs(1)),
		RunE: func(_ *cobra.Command, dirs []string) error {
			var all []*result.Data
			for _, dir := range dirs {
				data, err := loadRun(dir)
				if err != nil {
					return err
				}
				if data.Sections != nil {
					return &vitrine.BadInput{File: dir, Found: "a run that measured no capacities", Want: "vitrine report shows it; compare runs of characterize"}
				}
				all = append(all, data)
			}
			if out != "" {
				if err := report.Write(out, all...); err != nil {
					return err
				}
			}
			if asJSON {
				return report.CompareJSON(a.stdout, all...)
			}
			return report.Compare(a.stdout, all...)
		},
	}
	c.Flags().StringVar(&out, "out", "", "also write a report of all runs into this folder")
	c.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return c
}

// loadRun reads a run folder. A folder without a valid run is a BadInput.
func loadRun(dir string) (*result.Data, error) {
	data, err := result.Load(dir)
	if err != nil {
		return nil, &vitrine.BadInput{File: dir, Found: err.Error(), Want: "name the folder of a run (--out of characterize)"}
	}
	if data.Sections, err = sections(data); err != nil {
		return nil, &vitrine.BadInput{File: dir, Found: err.Error(), Want: "measure again, or use the version that wrote it"}
	}
	return data, nil
}

// sections returns the report sections of a run that measured networks or
// chains, and nil for a run that measured capacities.
func sections(d *result.Data) ([]result.Section, error) {
	for _, x := range []struct {
		kind string
		make func(*result.Data) ([]result.Section, error)
	}{
		{measure.Kind, measure.Sections}, {chain.Kind, chain.Sections},
	} {
		if d.Manifest.Measures(x.kind) {
			return x.make(d)
		}
	}
	return nil, nil
}

// present prints the results of the run and the path of the report.
func (a *app) present(dir string) error {
	data, err := loadRun(dir)
	if err != nil {
		return err
	}
	return report.Text(a.stdout, data)
}

func (a *app) writeReport(dir string) error {
	data, err := loadRun(dir)
	if err != nil {
		return err
	}
	return report.Write(dir, data)
}
