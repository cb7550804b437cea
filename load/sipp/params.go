package sipp

import (
	"fmt"
	"maps"
	"os"
	"strings"
	"time"

	"vitrine"
	"vitrine/load/param"
	"vitrine/load/sip"
)

// Params are the driver's parameters. They are those of the built-in generator, without those that
// the scenario file sets.
type Params struct {
	Scenario     string `json:"scenario" yaml:"scenario" jsonschema:"enum=reg-dereg,enum=reg-subscribe,enum=reg-invite,default=reg-dereg"`
	ScenarioFile string `json:"scenario_file" yaml:"scenario_file" jsonschema:"description=your own SIPp scenario instead; field0 to field2 are user part and domain and [authentication ...]"`

	Arrivals   string         `json:"arrivals" yaml:"arrivals" jsonschema:"enum=paced,enum=poisson,default=paced,description=calls arrive evenly or at random"`
	Retransmit bool           `json:"retransmit" yaml:"retransmit" jsonschema:"default=false,description=let SIPp retransmit"`
	Timeout    param.Duration `json:"timeout" yaml:"timeout" jsonschema:"default=10s,description=a call fails if a message does not arrive within this time"`

	Users          int            `json:"users" yaml:"users" jsonschema:"default=0,description=subscribers provisioned in the function; 0: as many as the rate needs"`
	CallTime       param.Duration `json:"call_time" yaml:"call_time" jsonschema:"description=longest time of a call up to its last request; the default follows from the timeout"`
	FirstUser      int            `json:"first_user" yaml:"first_user" jsonschema:"default=1,description=number of the first subscriber"`
	UserFormat     string         `json:"user_format" yaml:"user_format" jsonschema:"default=sub%06d,description=user part by number"`
	PasswordFormat string         `json:"password_format" yaml:"password_format" jsonschema:"default=pw-%s,description=password by user part"`
	Username       string         `json:"username" yaml:"username" jsonschema:"enum=user@domain,enum=user,default=user@domain,description=in credentials"`
	Domain         string         `json:"domain" yaml:"domain" jsonschema:"default=ims.test"`

	Local string `json:"local" yaml:"local" jsonschema:"description=source address; the default is that of the route to the target"`
	Port  int    `json:"port" yaml:"port" jsonschema:"default=5070,description=reg-invite: port of the callee; 0: any"`
}

// longestRetransmitting is the longest timeout with retransmissions. After 64 T1 (RFC 3261 section
// 17.1.1.2) SIPp gives the call up, and its error log does not name the call.
const longestRetransmitting = 30 * time.Second

// Decode parses the parameters of a trial twice: as the built-in generator's and as the driver's.
// Its errors are *vitrine.BadInput and name the parameter.
func Decode(given map[string]string) (sip.Params, Params, error) {
	rest := maps.Clone(given)
	delete(rest, "scenario_file")
	for _, name := range []string{"digest", "hold", "expires", "tick"} {
		if v, ok := rest[name]; ok {
			return sip.Params{}, Params{}, bad(fmt.Sprintf("parameter %s is %q", name, v), "a SIPp scenario sets this itself: write your own scenario and name it in scenario_file")
		}
	}
	if v, ok := rest["messages"]; ok {
		return sip.Params{}, Params{}, bad(fmt.Sprintf("parameter messages is %q", v), "SIPp cannot log events: use the generator sip")
	}
	p, err := sip.Decode(rest)
	if err != nil {
		return p, Params{}, err
	}
	file := given["scenario_file"]
	if file != "" {
		if given["scenario"] != "" {
			return p, Params{}, bad("parameters scenario and scenario_file are both given", "want one of them")
		}
		if _, err := os.Stat(file); err != nil {
			return p, Params{}, bad(fmt.Sprintf("parameter scenario_file is %q", file), err.Error())
		}
	}
	if time.Duration(p.Timeout)%time.Millisecond != 0 {
		return p, Params{}, bad(fmt.Sprintf("parameter timeout is %q", given["timeout"]), "SIPp counts whole milliseconds")
	}
	if p.Retransmit && time.Duration(p.Timeout) > longestRetransmitting {
		return p, Params{}, bad(fmt.Sprintf("parameter timeout is %q, with retransmit", given["timeout"]),
			fmt.Sprintf("want at most %v: SIPp gives a call up after 31.5 s of retransmissions, and does not log which one", longestRetransmitting))
	}
	return p, Params{
		Scenario: p.Scenario, ScenarioFile: file, Arrivals: p.Arrivals, Retransmit: p.Retransmit, Timeout: p.Timeout,
		Users: p.Users, CallTime: p.CallTime, FirstUser: p.FirstUser, UserFormat: p.UserFormat,
		PasswordFormat: p.PasswordFormat, Username: p.Username, Domain: p.Domain, Local: p.Local, Port: p.Port,
	}, nil
}

func bad(found, want string) error {
	return &vitrine.BadInput{File: "generator sipp", Found: found, Want: want}
}

// user returns the user part of a subscriber. Decode has checked the format.
func (p Params) user(number int) string { return fmt.Sprintf(p.UserFormat, number) }

// authentication returns SIPp's keyword for the subscriber's credentials.
func (p Params) authentication(number int) string {
	user := p.user(number)
	name := user
	if p.Username == "user@domain" {
		name += "@" + p.Domain
	}
	return "[authentication username=" + name + " password=" + strings.Replace(p.PasswordFormat, "%s", user, 1) + "]"
}
