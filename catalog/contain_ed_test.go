package catalog

import (
	"testing"

	"vitrine/director"
	"vitrine/flex/config"
	"vitrine/spec"
)

// TestContainedFilesAreValid checks the files of contain-ed-ims: every type of the
// orchestrator is one of the director, and drains alike. Package flex/e2e runs them.
func TestContainedFilesAreValid(t *testing.T) {
	c, err := config.Load("contain-ed-ims/flex.yaml", spec.Known{})
	if err != nil {
		t.Fatal(err)
	}
	d, err := director.Load("contain-ed-ims/director.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, ty := range c.Types {
		of := d.Type(ty.Name)
		if of == nil || of.Drain != ty.Drain {
			t.Errorf("type %s: the director has %+v", ty.Name, of)
		}
	}
}
