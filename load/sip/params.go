package sip

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"vitrine"
	"vitrine/load"
	"vitrine/load/param"
)

// The scenarios.
const (
	RegDereg     = "reg-dereg"
	RegSubscribe = "reg-subscribe"
	RegInvite    = "reg-invite"
)

// name is the generator's name in errors.
const name = "generator sip"

// Params are the generator's parameters.
type Params struct {
	Scenario   string         `json:"scenario" yaml:"scenario" jsonschema:"enum=reg-dereg,enum=reg-subscribe,enum=reg-invite,default=reg-dereg"`
	Digest     bool           `json:"digest" yaml:"digest" jsonschema:"default=true,description=the function challenges registrations"`
	Arrivals   string         `json:"arrivals" yaml:"arrivals" jsonschema:"enum=paced,enum=poisson,default=paced,description=calls arrive evenly or at random"`
	Retransmit bool           `json:"retransmit" yaml:"retransmit" jsonschema:"default=false,description=retransmit by the timers of RFC 3261"`
	Timeout    param.Duration `json:"timeout" yaml:"timeout" jsonschema:"default=10s,description=a call fails if a request has no final answer within this time"`
	Hold       param.Duration `json:"hold" yaml:"hold" jsonschema:"default=0s,description=reg-invite: time between ACK and BYE"`

	Users          int            `json:"users" yaml:"users" jsonschema:"default=0,description=subscribers provisioned in the function; 0: as many as the rate needs"`
	CallTime       param.Duration `json:"call_time" yaml:"call_time" jsonschema:"description=longest time of a call up to its last request; the default follows from the timeout"`
	FirstUser      int            `json:"first_user" yaml:"first_user" jsonschema:"default=1,description=number of the first subscriber"`
	UserFormat     string         `json:"user_format" yaml:"user_format" jsonschema:"default=sub%06d,description=user part by number"`
	PasswordFormat string         `json:"password_format" yaml:"password_format" jsonschema:"default=pw-%s,description=password by user part"`
	Username       string         `json:"username" yaml:"username" jsonschema:"enum=user@domain,enum=user,default=user@domain,description=in credentials"`
	Domain         string         `json:"domain" yaml:"domain" jsonschema:"default=ims.test"`
	Expires        int            `json:"expires" yaml:"expires" jsonschema:"default=3600,description=expiry of registrations and subscriptions in seconds"`

	Tick param.Duration `json:"tick" yaml:"tick" jsonschema:"default=1ms,description=interval at which answers are handled; adds up to this time to the latency of each exchange"`

	Local string `json:"local" yaml:"local" jsonschema:"description=source address; the default is that of the route to the target"`
	// Port of the contacts to which the function sends requests (reg-subscribe, reg-invite). It is
	// fixed, so that the registrations of a trial replace those that an earlier trial left. 0
	// means any port.
	Port int `json:"port" yaml:"port" jsonschema:"default=5070"`

	Messages string `json:"messages" yaml:"messages" jsonschema:"description=file for a line about each message sent or received, with the event that it belongs to (docs/affinity.md)"`
}

// Defaults returns the default parameters.
func Defaults() Params {
	return Params{
		Scenario: RegDereg, Digest: true, Arrivals: load.Paced, Timeout: param.Duration(10 * time.Second), FirstUser: 1,
		UserFormat: "sub%06d", PasswordFormat: "pw-%s", Username: "user@domain", Domain: "ims.test",
		Expires: 3600, Port: 5070, Tick: param.Duration(time.Millisecond),
	}
}

// Decode parses the parameters of a trial. Missing parameters keep their defaults.
// Its errors are *vitrine.BadInput and name the parameter.
func Decode(given map[string]string) (Params, error) {
	p := Defaults()
	setters := map[string]param.Setter{
		"scenario": param.OneOf(&p.Scenario, RegDereg, RegSubscribe, RegInvite),
		"arrivals": param.OneOf(&p.Arrivals, load.Paced, load.Poisson),
		"username": param.OneOf(&p.Username, "user@domain", "user"),
		"digest":   param.YesNo(&p.Digest), "retransmit": param.YesNo(&p.Retransmit),
		"timeout": param.Time(&p.Timeout, time.Millisecond), "hold": param.Time(&p.Hold, 0), "call_time": param.Time(&p.CallTime, 0),
		"tick":  param.Time(&p.Tick, time.Microsecond),
		"users": param.Whole(&p.Users, 0, 1<<30), "first_user": param.Whole(&p.FirstUser, 0, 1<<30),
		"expires": param.Whole(&p.Expires, 1, math.MaxInt32), "port": param.Whole(&p.Port, 0, 65535),
		"user_format": text(&p.UserFormat, "d"), "password_format": text(&p.PasswordFormat, "s"),
		"domain": text(&p.Domain, ""), "local": param.Address(&p.Local),
		"messages": func(s string) error { p.Messages = s; return nil },
	}
	if err := param.Decode(name, given, setters); err != nil {
		return p, err
	}
	if _, err := parseNumbered(p.UserFormat); err != nil {
		return p, bad(fmt.Sprintf("parameter user_format is %q", p.UserFormat), err.Error())
	}
	if n := strings.Count(p.PasswordFormat, "%"); n != strings.Count(p.PasswordFormat, "%s") || n > 1 {
		return p, bad(fmt.Sprintf("parameter password_format is %q", p.PasswordFormat), "want at most one %s, for the user part, and no other %")
	}
	return p, nil
}

func bad(found, want string) error {
	return &vitrine.BadInput{File: name, Found: found, Want: want}
}

// text returns a setter that accepts text that needs no escaping in a URI or in
// quotes.
func text(into *string, verb string) func(string) error {
	return func(s string) error {
		if s == "" || strings.ContainsAny(s, " \t\r\n\"\\<>;,@") || verb == "" && strings.Contains(s, "%") {
			return fmt.Errorf("want text without spaces, quotes and any of <>;,@")
		}
		*into = s
		return nil
	}
}

// A numbered is a parsed user format: %d or %0Nd between two texts.
type numbered struct {
	before, after string
	width         int // least number of digits
}

func parseNumbered(format string) (numbered, error) {
	before, rest, ok := strings.Cut(format, "%")
	digits, after, found := strings.Cut(rest, "d")
	width := 0
	if digits != "" {
		var err error
		if width, err = strconv.Atoi(digits); err != nil || digits[0] != '0' || width < 1 || width > 18 {
			found = false
		}
	}
	if !ok || !found || strings.Contains(after, "%") {
		return numbered{}, fmt.Errorf("want one %%d, or one with leading zeros such as %%06d, for the number")
	}
	return numbered{before: before, after: after, width: width}, nil
}

func (f numbered) append(b []byte, n int) []byte {
	b = append(b, f.before...)
	for limit, digits := 10, 1; digits < f.width; digits++ {
		if n < limit {
			b = append(b, '0')
		}
		limit *= 10
	}
	b = strconv.AppendInt(b, int64(n), 10)
	return append(b, f.after...)
}

// transactions returns the largest number of consecutive requests in a call. Each request may take
// up to the timeout.
func (p Params) transactions() int {
	registering := 1
	if p.Digest {
		registering = 2
	}
	switch p.Scenario {
	case RegSubscribe:
		return registering + 2 // SUBSCRIBE and its NOTIFY, REGISTER
	case RegInvite:
		return 2*registering + 2 // INVITE and its ACK, BYE
	}
	return registering + 1
}

// Parties returns the number of subscribers in a call.
func (p Params) Parties() int {
	if p.Scenario == RegInvite {
		return 2
	}
	return 1
}

// maxUsers is the maximum number of subscribers that the rate of a trial may need.
const maxUsers = 1 << 28

// Pool returns the number of subscribers needed at the rate: rate x (timeout + call time) for each
// party, because a subscriber can be in only one call at a time. Poisson arrivals need more,
// because calls may come in groups. Pool returns an error if the function does not have enough
// subscribers.
func (p Params) Pool(rate float64) (int, error) {
	callTime := time.Duration(p.CallTime)
	if callTime == 0 {
		callTime = time.Duration(p.transactions()-1)*time.Duration(p.Timeout) + time.Duration(p.Hold)
	}
	most := time.Duration(p.Timeout) + callTime
	need := load.MostOpen(p.Arrivals, rate, most) * float64(p.Parties())
	if need > maxUsers {
		return 0, bad(fmt.Sprintf("%.0f subscribers", need), "lower the rate, the timeout or call_time")
	}
	if p.Users == 0 {
		return int(need), nil
	}
	if float64(p.Users) < need {
		return 0, bad(fmt.Sprintf("parameter users is %d", p.Users),
			fmt.Sprintf("%v calls a second of up to %v each take %.0f subscribers; provision them, or lower timeout or call_time",
				rate, most, need))
	}
	return p.Users, nil
}
