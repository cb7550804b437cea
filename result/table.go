package result

import (
	"bytes"
	"encoding/csv"
	"math"
	"strconv"

	"vitrine"
)

// TableHeader is the first line of trials.csv. The first seven columns are the vitrine.Key.
const TableHeader = "seq,attempt,substrate,options,sizing,repeat,rate,duration_s," +
	"scheduled,offered,succeeded,failed,success_ratio," +
	"latency_p50_ms,latency_p95_ms,latency_p99_ms,valid,reason,accelerator," +
	"host_steal_cpus,host_other_cpus,host_speed_before_ratio,host_speed_during_ratio,host_speed_after_ratio," +
	"sampling_longest_s,sampling_gaps,generator_late_s"

// tableRow returns one outcome in the columns of TableHeader. Unknown values are empty: the ratio
// if nothing was scheduled, a latency if nothing succeeded, the accelerator without virtual
// machines, the host's columns if the host was not read, the monitor's if the trial was not
// monitored, and the generator's if its report does not have it.
func tableRow(o vitrine.Outcome) []string {
	host, sampling := newHostCells(o.Host), newSamplingCells(o.Sampling)
	return []string{
		strconv.Itoa(o.Seq), strconv.Itoa(o.Attempt),
		o.Substrate, o.Options, o.Subject,
		strconv.Itoa(o.Repeat), shortest(o.Rate), shortest(o.Duration.Seconds()),
		strconv.FormatInt(o.Scheduled, 10), strconv.FormatInt(o.Offered, 10),
		strconv.FormatInt(o.Succeeded, 10), strconv.FormatInt(o.FailedTotal(), 10),
		optional(ratio(o)),
		optional(latency(o, o.Latency.P50)), optional(latency(o, o.Latency.P95)), optional(latency(o, o.Latency.P99)),
		strconv.FormatBool(o.Valid), o.Reason, o.Accelerator,
		optional(host.Steal), optional(host.Other), optional(host.Before), optional(host.During), optional(host.After),
		optional(sampling.Longest), sampling.gaps(), optional(late(o)),
	}
}

// ratio returns the success ratio to six digits; nil if nothing was scheduled.
func ratio(o vitrine.Outcome) *float64 {
	if o.Scheduled == 0 {
		return nil
	}
	return sixDigits(o.SuccessRatio())
}

// sixDigits rounds to six digits after the decimal point.
func sixDigits(v float64) *float64 { return new(math.Round(v*1e6) / 1e6) }

// hostCells are a vitrine.HostReading as columns; nil: not read.
type hostCells struct {
	Steal  *float64 `parquet:"host_steal_cpus,optional"`
	Other  *float64 `parquet:"host_other_cpus,optional"`
	Before *float64 `parquet:"host_speed_before_ratio,optional"`
	During *float64 `parquet:"host_speed_during_ratio,optional"`
	After  *float64 `parquet:"host_speed_after_ratio,optional"`
}

func newHostCells(host *vitrine.HostReading) hostCells {
	if host == nil {
		return hostCells{}
	}
	speed := func(v float64) *float64 {
		if v <= 0 {
			return nil
		}
		return sixDigits(v)
	}
	cells := hostCells{Steal: sixDigits(host.Steal), Before: speed(host.Before), During: speed(host.During), After: speed(host.After)}
	if host.Other != nil {
		cells.Other = sixDigits(*host.Other)
	}
	return cells
}

// samplingCells are a vitrine.Sampling as columns; nil: not recorded.
type samplingCells struct {
	Longest *float64 `parquet:"sampling_longest_s,optional"`
	Gaps    *int64   `parquet:"sampling_gaps,optional"`
}

func newSamplingCells(s *vitrine.Sampling) samplingCells {
	if s == nil {
		return samplingCells{}
	}
	return samplingCells{sixDigits(s.Longest), new(int64(s.Gaps))}
}

func (c samplingCells) gaps() string {
	if c.Gaps == nil {
		return ""
	}
	return strconv.FormatInt(*c.Gaps, 10)
}

// late returns by how many seconds calls began late at most; nil if the generator does not report it.
func late(o vitrine.Outcome) *float64 {
	if o.Late == 0 {
		return nil
	}
	return sixDigits(o.Late.Seconds())
}

// latency returns a quantile in milliseconds; nil if no call has one.
func latency(o vitrine.Outcome, ms float64) *float64 {
	if o.Succeeded == 0 || ms <= 0 {
		return nil
	}
	return &ms
}

func shortest(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

func optional(v *float64) string {
	if v == nil {
		return ""
	}
	return shortest(*v)
}

// formatRow returns one line of the table, with its newline.
func formatRow(o vitrine.Outcome) ([]byte, error) {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	if err := w.Write(tableRow(o)); err != nil {
		return nil, err
	}
	w.Flush()
	return b.Bytes(), w.Error()
}

// formatTable returns the whole trials.csv.
func formatTable(outcomes []vitrine.Outcome) ([]byte, error) {
	b := []byte(TableHeader + "\n")
	for _, o := range outcomes {
		row, err := formatRow(o)
		if err != nil {
			return nil, err
		}
		b = append(b, row...)
	}
	return b, nil
}
