package s1ap

import (
	"fmt"
	"time"

	"vitrine"
	"vitrine/load"
	"vitrine/load/param"
	"vitrine/reference/epc/s1"
	"vitrine/wire/identity"
)

// The scenarios.
const (
	Attach         = "attach"
	AttachDetach   = "attach-detach"
	ServiceRequest = "service-request"
	Mix            = "mix"
)

// name is the generator's name in errors.
const name = "generator s1ap"

// maxUsers is the maximum number of UEs of a trial: the number of a UE has 20 bits
// of its eNB UE S1AP ID.
const maxUsers = 1 << 20

// Params are the generator's parameters.
type Params struct {
	Scenario    string         `json:"scenario" yaml:"scenario" jsonschema:"enum=attach,enum=attach-detach,enum=service-request,enum=mix,default=attach-detach"`
	Mix         string         `json:"mix" yaml:"mix" jsonschema:"description=procedures of the scenario mix and how often each is played"`
	Arrivals    string         `json:"arrivals" yaml:"arrivals" jsonschema:"enum=paced,enum=poisson,default=paced,description=calls arrive evenly or at random"`
	Timeout     param.Duration `json:"timeout" yaml:"timeout" jsonschema:"default=10s,description=a call fails if it is not over within this time"`
	Stay        param.Duration `json:"stay" yaml:"stay" jsonschema:"default=0s,description=how long a UE stays connected before it is released or detaches; not part of the latency"`
	ENodeBs     int            `json:"enodebs" yaml:"enodebs" jsonschema:"default=1,description=eNodeBs; each has an association with each target"`
	FirstENodeB int            `json:"first_enodeb" yaml:"first_enodeb" jsonschema:"default=1,description=identity of the first eNodeB"`
	Users       int            `json:"users" yaml:"users" jsonschema:"default=0,description=subscribers; 0: as many as the rate needs (for attach: one for each call)"`
	Subscribers string         `json:"subscribers" yaml:"subscribers" jsonschema:"default=001010000000001,description=IMSI of the first subscriber; their keys derive from the IMSI"`
	Network     string         `json:"network" yaml:"network" jsonschema:"default=00101,description=country and network code of the MMEs and the subscribers"`
	TAC         int            `json:"tac" yaml:"tac" jsonschema:"default=1,description=tracking area code of all eNodeBs"`
	Transport   string         `json:"transport" yaml:"transport" jsonschema:"enum=tcp,enum=sctp,default=tcp,description=transport of S1AP: SCTP where the kernel has it; or frames over TCP, which is not S1AP's transport"`
	Retries     int            `json:"retries" yaml:"retries" jsonschema:"default=0,description=how often a call begins again at another MME because its association ended, or at once because its connection was reset; for MMEs that share their UEs"`
	Tick        param.Duration `json:"tick" yaml:"tick" jsonschema:"default=1ms,description=interval at which messages are handled; adds up to this time to the latency of each exchange"`

	first   uint64 // the first IMSI as a number
	network identity.PLMN
	weights weights
}

// Defaults returns the default parameters.
func Defaults() Params {
	p := Params{
		Scenario: AttachDetach, Arrivals: load.Paced, Timeout: param.Duration(10 * time.Second), ENodeBs: 1, FirstENodeB: 1,
		TAC: 1, Transport: s1.TCP, Tick: param.Duration(time.Millisecond),
	}
	_ = p.setFirst("001010000000001") // both are valid
	_ = p.setNetwork("00101")
	_ = p.setMix(defaultMix)
	return p
}

// Decode parses the parameters of a trial. Missing parameters keep their defaults.
// Its errors are *vitrine.BadInput and name the parameter.
func Decode(given map[string]string) (Params, error) {
	p := Defaults()
	err := param.Decode(name, given, map[string]param.Setter{
		"scenario": param.OneOf(&p.Scenario, Attach, AttachDetach, ServiceRequest, Mix),
		"arrivals": param.OneOf(&p.Arrivals, load.Paced, load.Poisson),
		"timeout":  param.Time(&p.Timeout, time.Millisecond), "tick": param.Time(&p.Tick, time.Microsecond), "stay": param.Time(&p.Stay, 0),
		"enodebs": param.Whole(&p.ENodeBs, 1, 1024), "first_enodeb": param.Whole(&p.FirstENodeB, 0, 1<<20-1024),
		"users": param.Whole(&p.Users, 0, maxUsers), "tac": param.Whole(&p.TAC, 0, 0xffff),
		"transport":   param.OneOf(&p.Transport, s1.TCP, s1.SCTP),
		"retries":     param.Whole(&p.Retries, 0, 100),
		"subscribers": p.setFirst, "network": p.setNetwork, "mix": p.setMix,
	})
	if err != nil {
		return p, err
	}
	if p.Subscribers[:len(p.Network)] != p.Network {
		return p, bad("parameter network is "+p.Network, "want the first digits of the subscribers' IMSIs, which are "+p.Subscribers)
	}
	if _, given := given["mix"]; given && p.Scenario != Mix {
		return p, bad("parameter mix", "it is for the scenario mix, but the scenario is "+p.Scenario)
	}
	if p.Scenario == Mix && p.weights.hands() && p.ENodeBs < 2 {
		return p, bad("parameter enodebs is 1", "want at least 2, because the mix has handovers")
	}
	return p, nil
}

// setMix accepts the weights of a mix.
func (p *Params) setMix(s string) (err error) {
	p.Mix = s
	p.weights, err = parseMix(s)
	return err
}

func bad(found, want string) error {
	return &vitrine.BadInput{File: name, Found: found, Want: want}
}

// setFirst accepts an IMSI of 15 digits.
func (p *Params) setFirst(s string) error {
	d, ok := identity.MakeDigits(s)
	if !ok || d.Len() != imsiDigits {
		return fmt.Errorf("want an IMSI of %d digits", imsiDigits)
	}
	p.Subscribers, p.first = s, 0
	for _, c := range d.Bytes() {
		p.first = p.first*10 + uint64(c-'0')
	}
	return nil
}

const imsiDigits = 15

// setNetwork accepts a country code of three digits and a network code of two or
// three.
func (p *Params) setNetwork(s string) error {
	network, ok := identity.ParsePLMN(s)
	if !ok {
		return fmt.Errorf("want five or six digits")
	}
	p.Network, p.network = s, network
	return nil
}

// imsi returns the IMSI of a subscriber.
func (p *Params) imsi(n int) (d identity.Digits) {
	v := p.first + uint64(n)
	divisor := uint64(1)
	for range imsiDigits - 1 {
		divisor *= 10
	}
	for ; divisor > 0; divisor /= 10 {
		d.Add(byte(v / divisor % 10))
	}
	return d
}

// limit returns how long a call may take, including the stay of its UE.
func (p *Params) limit() time.Duration {
	if p.Scenario == Attach {
		return time.Duration(p.Timeout)
	}
	return time.Duration(p.Timeout + p.Stay)
}

// pool returns the number of UEs of a trial. A call occupies its UE for at most its limit,
// unless it is retried after its stay.
func (p *Params) pool(t load.Trial) (int, error) {
	need := load.MostOpen(p.Arrivals, t.Rate, p.limit()) // if no call is answered
	if p.Scenario == Attach {
		calls := 0
		s := t.Schedule(p.Arrivals)
		for _, ok := s.Next(); ok; _, ok = s.Next() {
			calls++
		}
		need = max(need, float64(min(calls, maxUsers)))
	}
	switch {
	case need > maxUsers:
		return 0, bad(fmt.Sprintf("%.0f subscribers", need), fmt.Sprintf("at most %d: lower the rate, timeout or stay", maxUsers))
	case p.Users == 0:
		return int(need), nil
	case p.Scenario != Attach && float64(p.Users) < need:
		return 0, bad(fmt.Sprintf("parameter users is %d", p.Users),
			fmt.Sprintf("%v calls a second of up to %v each take %.0f subscribers; provision them, or lower timeout or stay", t.Rate, p.limit(), need))
	}
	return p.Users, nil
}
