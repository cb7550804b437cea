package spec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"

	"vitrine"
	"vitrine/document"
)

// stopVariables returns the variables of a stop expression, all doubles. They are
// an outcome's fields under the names of trials.csv, and the paper's SCR and ICR
// (NFV-VITAL, II.B.2).
func stopVariables(o vitrine.Outcome) map[string]any {
	seconds := o.Duration.Seconds()
	rate := 0.0
	if seconds > 0 {
		rate = float64(o.Succeeded) / seconds
	}
	return map[string]any{
		"icr":            o.Rate, // requested rate
		"scr":            rate,   // succeeded per second
		"rate":           o.Rate,
		"duration_s":     seconds,
		"scheduled":      float64(o.Scheduled),
		"offered":        float64(o.Offered),
		"succeeded":      float64(o.Succeeded),
		"failed":         float64(o.FailedTotal()),
		"success_ratio":  o.SuccessRatio(),
		"latency_p50_ms": o.Latency.P50,
		"latency_p95_ms": o.Latency.P95,
		"latency_p99_ms": o.Latency.P99,
	}
}

// stopCost is the CEL cost limit of one evaluation. A reasonable expression costs
// some tens.
const stopCost = 100_000

// compileStop compiles a stop expression (CEL) to a condition on an outcome. If the
// evaluation fails for an outcome, as int(0.0 / 0.0) does, the condition is false.
func compileStop(n document.Node, expression string) (func(vitrine.Outcome) bool, error) {
	variables := slices.Sorted(maps.Keys(stopVariables(vitrine.Outcome{})))
	options := []cel.EnvOption{cel.CrossTypeNumericComparisons(true), cel.ClearMacros(), cel.ParserExpressionSizeLimit(4096), cel.ParserRecursionLimit(64)}
	for _, name := range variables {
		options = append(options, cel.Variable(name, cel.DoubleType))
	}
	env, err := cel.NewEnv(options...)
	if err != nil {
		return nil, fmt.Errorf("make the environment of stop: %w", err)
	}
	parsed, issues := env.Parse(expression)
	if issues.Err() != nil {
		return nil, stopError(n, issues, variables)
	}
	convertToDoubles(parsed)
	checked, issues := env.Check(parsed)
	if issues.Err() != nil {
		return nil, stopError(n, issues, variables)
	}
	if checked.OutputType() != cel.BoolType {
		return nil, n.BadInput(fmt.Sprintf("stop is of type %s", checked.OutputType()), "want a condition, such as scr / icr < 0.8")
	}
	program, err := env.Program(checked, cel.CostLimit(stopCost))
	if err != nil {
		return nil, n.BadInput("stop: "+err.Error(), "want a condition, such as scr / icr < 0.8")
	}
	return func(o vitrine.Outcome) bool {
		v, _, err := program.Eval(stopVariables(o))
		if err != nil {
			return false
		}
		holds, _ := v.Value().(bool)
		return holds
	}, nil
}

// convertToDoubles converts every number in the expression to a double, because CEL does
// not mix types in arithmetic. Then failed * 2 > scheduled and failed == 0 work as
// written.
func convertToDoubles(parsed *cel.Ast) {
	factory := ast.NewExprFactory()
	ast.PostOrderVisit(parsed.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.LiteralKind {
			return
		}
		switch number := e.AsLiteral().(type) {
		case types.Int:
			e.SetKindCase(factory.NewLiteral(e.ID(), types.Double(number)))
		case types.Uint:
			e.SetKindCase(factory.NewLiteral(e.ID(), types.Double(number)))
		}
	}))
}

// stopError reports all errors that CEL finds, each at its position inside the
// expression if the file shows the expression verbatim.
func stopError(n document.Node, issues *cel.Issues, variables []string) error {
	want := "want a condition in CEL, such as scr / icr < 0.8, of doubles: " + strings.Join(variables, ", ")
	var errs []*vitrine.BadInput
	for i, issue := range issues.Errors() {
		message, _, _ := strings.Cut(issue.Message, " (in container")
		if i > 0 {
			want = "" // give the hint only once
		}
		errs = append(errs, n.BadText("stop: "+message, want, issue.Location.Line(), issue.Location.Column()))
	}
	errs = slices.CompactFunc(errs, func(a, b *vitrine.BadInput) bool { return *a == *b })
	all := document.Errors{Node: n}
	for _, bad := range errs {
		all.Add(bad)
	}
	return all.Join()
}
