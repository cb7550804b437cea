package catalog

import (
	"cmp"
	"testing"

	"vitrine/director"
	"vitrine/flex/config"
)

// TestContainedFilesAreValid checks the files of the packages. Every type of the orchestrator must
// be a type of the director and drain in the same way. Package flex/e2e runs the packages.
func TestContainedFilesAreValid(t *testing.T) {
	for _, dir := range []string{"contain-ed-ims", "contain-ed-epc", "contain-ed-kamailio"} {
		c, err := config.Load(dir+"/flex.yaml", known())
		if err != nil {
			t.Fatal(err)
		}
		d, err := director.Load(dir + "/director.yaml")
		if err != nil {
			t.Fatal(err)
		}
		for _, ty := range c.Types {
			of := d.Type(ty.Name)
			if of == nil || cmp.Or(of.Drain, config.DrainTransactions) != cmp.Or(ty.Drain, config.DrainTransactions) {
				t.Errorf("%s, type %s: the director has %+v", dir, ty.Name, of)
			}
		}
	}
}
