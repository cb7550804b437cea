package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"

	jsonpatch "github.com/evanphx/json-patch/v5"
)

// A PatchItem is one instruction of a JSON patch (RFC 6902; TS 29.571 clause 5.2.4.4).
type PatchItem struct {
	Op    string          `json:"op"` // add, remove, replace, move, copy, test
	Path  string          `json:"path"`
	From  string          `json:"from,omitempty"`
	Value json.RawMessage `json:"value,omitempty"`
}

// A PatchResult lists the instructions that were not applied (TS 29.571 clause 5.2.4.6).
type PatchResult struct {
	Report []ReportItem `json:"report"`
}

// A ReportItem says why an instruction was not applied.
type ReportItem struct {
	Path   string `json:"path"`
	Reason string `json:"reason,omitempty"`
}

// ParsePatch parses a JSON patch. The error is a *Problem.
func ParsePatch(data []byte, l Limits) ([]PatchItem, error) {
	var items []PatchItem
	if err := decode(data, &items); err != nil {
		return nil, BadParam(CauseMessageFormat, "body", "is not a JSON patch: %v", err)
	}
	if len(items) == 0 || len(items) > l.Patches {
		return nil, BadParam(CauseMessageFormat, "body", "has %d instructions; 1 to %d are allowed", len(items), l.Patches)
	}
	for i, item := range items {
		switch item.Op {
		case "add", "replace", "test":
			if item.Value == nil {
				return nil, BadParam(CauseIEMissing, fmt.Sprintf("/%d/value", i), "%s needs a value", item.Op)
			}
		case "move", "copy":
			if item.From == "" {
				return nil, BadParam(CauseIEMissing, fmt.Sprintf("/%d/from", i), "%s needs from", item.Op)
			}
		case "remove":
		default:
			return nil, BadParam(CauseIEIncorrect, fmt.Sprintf("/%d/op", i), "no operation %q", item.Op)
		}
	}
	return items, nil
}

// ApplyPatch applies the instructions to a document in order. If all succeed and accept accepts the
// outcome, the documents in between do not matter (RFC 6902 section 5). Else it skips and reports
// instructions that fail or whose result accept refuses (TS 29.501 clause 4.6.1.1.3.2). If a test fails,
// it applies nothing and returns the document and a *Problem (RFC 6902 section 5, RFC 5789 section
// 2.2). The document never grows beyond limit bytes.
func ApplyPatch[T any](doc T, items []PatchItem, limit int, accept func(T) error) (T, []ReportItem, error) {
	whole, report, err := applyEach(doc, items, limit, func(T) error { return nil })
	if err == nil && report == nil && accept(whole) == nil {
		return whole, nil, nil
	}
	return applyEach(doc, items, limit, accept)
}

// applyEach skips and reports the instructions that fail or whose result accept refuses.
func applyEach[T any](doc T, items []PatchItem, limit int, accept func(T) error) (T, []ReportItem, error) {
	text, err := marshal(doc)
	if err != nil {
		return doc, nil, err
	}
	original := doc
	var report []ReportItem
	for _, item := range items {
		next, changed, err := applyItem[T](text, item, limit)
		if err == nil {
			err = accept(next)
		}
		if err != nil && item.Op == "test" {
			return original, nil, NewProblem(http.StatusConflict, "", "nothing was changed, because the test of %q failed: %v", item.Path, err)
		}
		if err != nil {
			report = append(report, ReportItem{Path: item.Path, Reason: err.Error()})
			continue
		}
		doc, text = next, changed
	}
	return doc, report, nil
}

func applyItem[T any](text []byte, item PatchItem, limit int) (next T, changed []byte, err error) {
	single, err := marshal([]PatchItem{item})
	if err != nil {
		return next, nil, err
	}
	patch, err := jsonpatch.DecodePatch(single)
	if err != nil {
		return next, nil, err
	}
	options := jsonpatch.NewApplyOptions()
	options.AccumulatedCopySizeLimit = int64(limit)
	if changed, err = patch.ApplyWithOptions(text, options); err != nil {
		return next, nil, err
	}
	if len(changed) > limit {
		return next, nil, fmt.Errorf("the outcome is over %d bytes", limit)
	}
	if bytes.Equal(bytes.TrimSpace(changed), []byte("null")) {
		return next, nil, fmt.Errorf("the outcome is null")
	}
	return next, changed, decodeStrict(changed, &next)
}

// marshal is json.Marshal with an error that names the type.
func marshal(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("write %T as JSON: %w", v, err)
	}
	return data, nil
}
