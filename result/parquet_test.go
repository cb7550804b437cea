package result

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/parquet-go/parquet-go"
)

// TestRowGroupsAreBounded checks that a long file has several row groups and all rows.
func TestRowGroupsAreBounded(t *testing.T) {
	const rows = 2*rowsPerGroup + 1
	path := filepath.Join(t.TempDir(), "rows.parquet")
	err := writeRows(path, func(w *parquet.GenericWriter[parquetKey]) error {
		batch := make([]parquetKey, 1000) // no divisor of a row group
		for n := 0; n < rows; n += len(batch) {
			if _, err := w.Write(batch[:min(len(batch), rows-n)]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	file, err := parquet.OpenFile(f, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	if groups := file.RowGroups(); file.NumRows() != rows || len(groups) != 3 || groups[0].NumRows() != rowsPerGroup {
		t.Errorf("%d rows in %d groups, want %d in 3", file.NumRows(), len(groups), rows)
	}
}
