package papers

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"vitrine/measure"
	"vitrine/measure/chain"
	"vitrine/result"
)

// A Plan is everything that decides what a run measures and how it is judged.
type Plan struct {
	Exhibit    string            `json:"exhibit"` // whose run it is
	Deployment string            `json:"deployment,omitempty"`
	Workload   string            `json:"workload,omitempty"`
	Files      map[string]string `json:"files,omitempty"` // scripts of the deployment, by name
	Network    *measure.Settings `json:"network,omitempty"`
	Chain      *chain.Settings   `json:"chain,omitempty"`
	Shown      []Shown           `json:"shown"`                // one per exhibit that shows the run
	Deviations []string          `json:"deviations,omitempty"` // flags that change what is measured; a committed plan has none
}

// Shown says how one exhibit shows and judges a run.
type Shown struct {
	Name   string  `json:"name"`
	Table  Table   `json:"table"`
	Claims []Claim `json:"claims"`
}

// Plan returns the plan of the run that the exhibit shows. A plan with deviations
// differs from every committed plan.
func (e Exhibit) Plan(scale Scale, deviations ...string) (Plan, error) {
	p := Plan{Exhibit: e.Base(), Deviations: deviations}
	if scale != Full {
		p.Deviations = append(p.Deviations, "--"+string(scale))
	}
	list, err := sharing(p.Exhibit)
	if err != nil {
		return p, err
	}
	for _, s := range list {
		p.Shown = append(p.Shown, Shown{s.Name, s.Table, s.Claims})
	}
	switch {
	case e.Network != nil:
		s := e.NetworkSettings(scale)
		p.Network = &s
	case e.Chain != nil:
		s := e.ChainSettings(scale)
		p.Chain = &s
	default:
		d, w, err := e.specs(scale)
		if err != nil {
			return p, err
		}
		p.Deployment, p.Workload = string(d), string(w)
		if p.Files, err = e.scripts(); err != nil {
			return p, err
		}
	}
	return p, nil
}

// Role is the role of the plan among the specifications of a run's manifest.
const Role = "plan"

// Spec returns the plan as a specification of the run, with its text and its
// digest.
func (p Plan) Spec() (result.Spec, error) {
	text, err := json.MarshalIndent(p, "", " ")
	if err != nil {
		return result.Spec{}, fmt.Errorf("%s: %w", p.Exhibit, err)
	}
	return result.NewSpec(Role, Prefix+p.Exhibit, text), nil
}

// Digest returns the name of the plan: 16 hexadecimal digits of its SHA-256.
func (p Plan) Digest() (string, error) {
	s, err := p.Spec()
	if err != nil {
		return "", err
	}
	return digest([]byte(s.Text)), nil
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// PlanOf returns the digest of the plan of a run; empty: the run kept none.
func PlanOf(m result.Manifest) (digestOf string, deviations []string, err error) {
	for _, s := range m.Specs {
		if s.Role != Role {
			continue
		}
		var p Plan
		if err := json.Unmarshal([]byte(s.Text), &p); err != nil {
			return "", nil, fmt.Errorf("the plan in the run's manifest: %w", err)
		}
		return digest([]byte(s.Text)), p.Deviations, nil
	}
	return "", nil, nil
}
