package result

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/parquet-go/parquet-go"

	"vitrine"
)

// parquetKey is a vitrine.Key as columns, with the names of trials.csv.
type parquetKey struct {
	Seq       int64   `parquet:"seq"`
	Attempt   int64   `parquet:"attempt"`
	Substrate string  `parquet:"substrate,dict"`
	Options   string  `parquet:"options,dict"`
	Sizing    string  `parquet:"sizing,dict"`
	Repeat    int64   `parquet:"repeat"`
	Rate      float64 `parquet:"rate"`
}

func newParquetKey(k vitrine.Key) parquetKey {
	return parquetKey{int64(k.Seq), int64(k.Attempt), k.Substrate, k.Options, k.Subject, int64(k.Repeat), k.Rate}
}

// trialRow is one line of trials.csv. Numbers that are empty there are null here; texts are "".
type trialRow struct {
	parquetKey
	Duration     float64  `parquet:"duration_s"`
	Scheduled    int64    `parquet:"scheduled"`
	Offered      int64    `parquet:"offered"`
	Succeeded    int64    `parquet:"succeeded"`
	Failed       int64    `parquet:"failed"`
	SuccessRatio *float64 `parquet:"success_ratio,optional"`
	LatencyP50   *float64 `parquet:"latency_p50_ms,optional"`
	LatencyP95   *float64 `parquet:"latency_p95_ms,optional"`
	LatencyP99   *float64 `parquet:"latency_p99_ms,optional"`
	Valid        bool     `parquet:"valid"`
	Reason       string   `parquet:"reason"`
	Accelerator  string   `parquet:"accelerator,dict"`
	hostCells
	samplingCells
	Late *float64 `parquet:"generator_late_s,optional"`
}

func newTrialRow(o vitrine.Outcome) trialRow {
	return trialRow{
		parquetKey: newParquetKey(o.Key),
		Duration:   o.Duration.Seconds(),
		Scheduled:  o.Scheduled, Offered: o.Offered, Succeeded: o.Succeeded, Failed: o.FailedTotal(),
		SuccessRatio: ratio(o),
		LatencyP50:   latency(o, o.Latency.P50),
		LatencyP95:   latency(o, o.Latency.P95),
		LatencyP99:   latency(o, o.Latency.P99),
		Valid:        o.Valid, Reason: o.Reason, Accelerator: o.Accelerator,
		hostCells: newHostCells(o.Host), samplingCells: newSamplingCells(o.Sampling), Late: late(o),
	}
}

// usageRow is one line of a usage file, with its trial.
type usageRow struct {
	parquetKey
	Time      float64  `parquet:"t_s"`
	Instance  string   `parquet:"instance,dict"`
	Component string   `parquet:"component,dict"`
	CPU       *float64 `parquet:"cpu,optional"`
	Memory    *float64 `parquet:"memory_bytes,optional"`
	RxBytes   *float64 `parquet:"rx_bytes_s,optional"`
	TxBytes   *float64 `parquet:"tx_bytes_s,optional"`
	Throttled *float64 `parquet:"throttled,optional"`
	Softirq   *float64 `parquet:"softirq,optional"`
	Steal     *float64 `parquet:"steal,optional"`
	Missing   string   `parquet:"missing,dict"`
}

func newUsageRow(k parquetKey, s Sample) usageRow {
	return usageRow{k, s.Time, s.Instance, s.Component, s.CPU, s.Memory, s.RxBytes, s.TxBytes, s.Throttled, s.Softirq, s.Steal, s.Missing}
}

// writeParquet writes both files from scratch. If a usage file is damaged, it keeps the lines
// before the damage, writes the rest of the files, and returns an error that names the damage.
func writeParquet(dir string, outcomes []vitrine.Outcome) error {
	err := writeRows(filepath.Join(dir, trialsParquet), func(w *parquet.GenericWriter[trialRow]) error {
		for _, o := range outcomes {
			if _, err := w.Write([]trialRow{newTrialRow(o)}); err != nil {
				return err
			}
		}
		return nil
	})
	var damaged []error
	usageErr := writeRows(filepath.Join(dir, usageParquet), func(w *parquet.GenericWriter[usageRow]) error {
		for _, o := range outcomes {
			bad, err := joinUsage(dir, o.Key, w)
			if err != nil {
				return err
			}
			if bad != nil {
				damaged = append(damaged, bad)
			}
		}
		return nil
	})
	return errors.Join(err, usageErr, errors.Join(damaged...))
}

// joinUsage copies one trial's samples. damaged is the error of a damaged file.
func joinUsage(dir string, key vitrine.Key, w *parquet.GenericWriter[usageRow]) (damaged, err error) {
	f, err := os.Open(filepath.Join(dir, usageName(key)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // not monitored
	} else if err != nil {
		return err, nil
	}
	defer func() { _ = f.Close() }() // opened for reading

	columns := newParquetKey(key)
	rows := make([]usageRow, 0, 1024)
	flush := func() error {
		_, err := w.Write(rows)
		rows = rows[:0]
		return err
	}
	var writing error
	damaged = ReadUsage(f, func(s Sample) error {
		rows = append(rows, newUsageRow(columns, s))
		if len(rows) == cap(rows) {
			writing = flush()
		}
		return writing
	})
	if writing == nil {
		writing = flush()
	} else {
		damaged = nil
	}
	if damaged != nil {
		damaged = fmt.Errorf("%s: %w", usageName(key), damaged)
	}
	return damaged, writing
}

// rowsPerGroup limits the memory of a Parquet writer, which holds the rows of a group until the
// group is complete.
const rowsPerGroup = 1 << 17

func writeRows[T any](path string, write func(*parquet.GenericWriter[T]) error) error {
	return replace(path, func(out io.Writer) error {
		w := parquet.NewGenericWriter[T](out, parquet.Compression(&parquet.Zstd), parquet.MaxRowsPerRowGroup(rowsPerGroup))
		if err := write(w); err != nil {
			return err
		}
		return w.Close()
	})
}
