package result

import (
	"bytes"
	"encoding/csv"
	"math"
	"strconv"

	"vitrine"
)

// TableHeader is the first line of trials.csv. The first seven columns are the
// vitrine.Key.
const TableHeader = "seq,attempt,substrate,options,sizing,repeat,rate,duration_s," +
	"scheduled,offered,succeeded,failed,success_ratio," +
	"latency_p50_ms,latency_p95_ms,latency_p99_ms,valid,reason,accelerator"

// tableRow is one outcome in the columns of TableHeader. What is not known is
// empty: the ratio when nothing was scheduled, a latency when nothing succeeded,
// the accelerator where there was no virtual machine.
func tableRow(o vitrine.Outcome) []string {
	return []string{
		strconv.Itoa(o.Seq), strconv.Itoa(o.Attempt),
		o.Substrate, o.Options, o.Subject,
		strconv.Itoa(o.Repeat), shortest(o.Rate), shortest(o.Duration.Seconds()),
		strconv.FormatInt(o.Scheduled, 10), strconv.FormatInt(o.Offered, 10),
		strconv.FormatInt(o.Succeeded, 10), strconv.FormatInt(o.FailedTotal(), 10),
		optional(ratio(o)),
		optional(latency(o, o.Latency.P50)), optional(latency(o, o.Latency.P95)), optional(latency(o, o.Latency.P99)),
		strconv.FormatBool(o.Valid), o.Reason, o.Accelerator,
	}
}

// ratio is the success ratio to six digits; nil when nothing was scheduled.
func ratio(o vitrine.Outcome) *float64 {
	if o.Scheduled == 0 {
		return nil
	}
	return new(math.Round(o.SuccessRatio()*1e6) / 1e6)
}

// latency is a quantile in milliseconds; nil when no call has one.
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

// formatRow is one line of the table, with its newline.
func formatRow(o vitrine.Outcome) ([]byte, error) {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	if err := w.Write(tableRow(o)); err != nil {
		return nil, err
	}
	w.Flush()
	return b.Bytes(), w.Error()
}

// formatTable is the whole of trials.csv.
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
