package director

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"go.yaml.in/yaml/v3"

	"vitrine"
	"vitrine/document"
)

// The protocols that the director speaks.
const (
	SIP  = "sip"
	GTPC = "gtpc"
)

// When a draining instance has done its work.
const (
	DrainTransactions = "transaction"
	DrainDialogs      = "dialog"
)

// A Duration is a span of time, written 500ms or 32s.
type Duration time.Duration

// UnmarshalYAML reads what time.ParseDuration reads.
func (d *Duration) UnmarshalYAML(n *yaml.Node) error {
	v, err := time.ParseDuration(n.Value)
	*d = Duration(v)
	return err
}

// Config is the director's configuration file.
type Config struct {
	Listen     Listen         `yaml:"listen" jsonschema:"required"`                       // Where it listens. The control address beyond loopback needs tokens or client certificates.
	Workers    int            `yaml:"workers" jsonschema:"minimum=1,maximum=256"`         // Goroutines that steer; default: one a CPU.
	Transition Duration       `yaml:"transition" jsonschema:"format=positive-duration"`   // How long a transaction may have messages after its table was replaced; default 64 x T1 = 32s. Longer for INVITEs that ring longer.
	State      string         `yaml:"state"`                                              // File that outlives a restart: instances, epoch, the table before it. Default: the configuration file's name with .state.
	Memory     Memory         `yaml:"memory"`                                             // Bounds of what is kept.
	Types      []Type         `yaml:"types" jsonschema:"required,minItems=1,maxItems=64"` // The aggregate types.
	Rules      []Rule         `yaml:"rules"`                                              // Which messages go to which type; the first that fits counts.
	Instances  []Instance     `yaml:"instances"`                                          // The instances at the start; more come by REST.
	Regions    []Region       `yaml:"regions"`                                            // Where clients are.
	Trusted    []netip.Prefix `yaml:"trusted"`                                            // SIP: networks, such as 10.2.0.0/24, that instances also send from, beside their own IP addresses: what comes from there by the director's Path or Record-Route is sent outward.
	Health     Health         `yaml:"health"`                                             // How instances are watched.
	Overload   *Overload      `yaml:"overload"`                                           // The gate at the ingress of each type; left out: none.
	Feedback   bool           `yaml:"feedback"`                                           // SIP: ask instances for overload feedback (RFC 7339).
	Bounded    float64        `yaml:"bounded_load" jsonschema:"minimum=1"`                // Off when left out. No new keys for an instance with more than this many times its share of the transactions in flight.
	Keys       Keys           `yaml:"keys"`                                               // SIP: what signs the director's entries in Via, Record-Route and Path.
	Control    Control        `yaml:"control"`                                            // Who may use the control address.
	GTPC       GTPOptions     `yaml:"gtpc"`                                               // Of GTP-C.

	file document.File
}

// Listen is where the director listens.
type Listen struct {
	SIP       []string `yaml:"sip"`                                                  // Such as udp://127.0.0.1:5060 or tcp://[::1]:5060.
	GTPC      []string `yaml:"gtpc"`                                                 // Such as udp://127.0.0.1:2123.
	Advertise string   `yaml:"advertise"`                                            // SIP: the host that Via, Record-Route and Path name, when it is not the address; the same for directors side by side.
	Names     []string `yaml:"names"`                                                // SIP: further hosts that Route and Request-URI may name the director by.
	Control   string   `yaml:"control" jsonschema:"required,example=127.0.0.1:8090"` // REST API and /metrics.
}

// Memory bounds what is kept, whatever comes in.
type Memory struct {
	Keys         int `yaml:"keys" jsonschema:"minimum=8,maximum=100000000"`         // Keys that each worker remembers for a transition, 8 bytes each; default 262144.
	Transactions int `yaml:"transactions" jsonschema:"minimum=8,maximum=100000000"` // Transactions in flight that are timed, 8 bytes each; default 262144.
	Connections  int `yaml:"connections" jsonschema:"minimum=10,maximum=1000000"`   // SIP over TCP: connections in all; a tenth is kept for instances; default 10000.
	PerSource    int `yaml:"connections_per_source" jsonschema:"minimum=1"`         // SIP over TCP: connections with one IP address (IPv6: one /64) that is no instance's; default a tenth of connections.
}

// A Type is an aggregate type.
type Type struct {
	Name      string    `yaml:"name" jsonschema:"required,format=name"`            // Such as registration.
	Protocol  string    `yaml:"protocol" jsonschema:"required,enum=sip,enum=gtpc"` // What it speaks.
	Transport string    `yaml:"transport" jsonschema:"enum=udp,enum=tcp"`          // SIP: how instances are spoken to; default udp.
	Drain     string    `yaml:"drain" jsonschema:"enum=transaction,enum=dialog"`   // What draining waits for; default transaction.
	Number    uint8     `yaml:"number" jsonschema:"minimum=1,maximum=7"`           // GTP-C: its number in the TEIDs that its instances hand out; left out: they take no prefix, and TEIDs are learned.
	Overload  *Overload `yaml:"overload"`                                          // Its own gate, instead of the file's.
	Rooms     []Room    `yaml:"rooms"`                                             // Regions that have room for a share of their own traffic only.
}

// A Room is how much of its own traffic a region has room for.
type Room struct {
	Region string  `yaml:"region" jsonschema:"required,format=name"`        // Its name.
	Share  float64 `yaml:"share" jsonschema:"required,minimum=0,maximum=1"` // 0 to 1 of the keys of its clients; the others go to all regions.
}

// A Rule maps messages to an aggregate type.
type Rule struct {
	Method     string `yaml:"method" json:"method,omitempty"`                                                                       // SIP: the request's method, such as REGISTER; left out: any.
	Event      string `yaml:"event" json:"event,omitempty"`                                                                         // SIP: the event package of SUBSCRIBE, NOTIFY and PUBLISH, such as reg.
	Key        string `yaml:"key" json:"key,omitempty" jsonschema:"enum=call-id,enum=from,enum=to,enum=request-uri"`                // SIP: what is steered by; default call-id.
	Message    string `yaml:"message" json:"message,omitempty"`                                                                     // GTP-C: the message's name, such as create-session; left out: any.
	Interface  string `yaml:"interface" json:"interface,omitempty" jsonschema:"enum=s3,enum=s4,enum=s5,enum=s10,enum=s11,enum=s16"` // GTP-C: that of the sender's F-TEID; left out: any.
	Relocation bool   `yaml:"relocation" json:"relocation,omitempty"`                                                               // GTP-C: of create-session, only those that move a session to another S-GW.
	Type       string `yaml:"type" json:"type" jsonschema:"required,format=name"`                                                   // The aggregate type that serves them.
}

// An Instance is one running copy of an aggregate.
type Instance struct {
	Name    string         `yaml:"name" jsonschema:"required,format=name"`                                              // Unique in the whole file.
	Type    string         `yaml:"type" jsonschema:"required,format=name"`                                              // The aggregate type.
	Address netip.AddrPort `yaml:"address" jsonschema:"required,example=127.0.0.1:5061"`                                // Where its ingress listens.
	Weight  float64        `yaml:"weight" jsonschema:"exclusiveMinimum=0"`                                              // Its capacity, such as transactions a second; default 1.
	Region  string         `yaml:"region" jsonschema:"format=name"`                                                     // Where it is.
	State   vitrine.State  `yaml:"state" jsonschema:"enum=starting,enum=active,enum=draining,enum=down,default=active"` // Which transactions it gets.
	ID      uint16         `yaml:"id" jsonschema:"minimum=1,maximum=65535"`                                             // Its number within the type; default: from its name. Directors side by side must agree on it.
}

// A Region is where clients are.
type Region struct {
	Name     string         `yaml:"name" jsonschema:"required,format=name"` // As instances have it.
	Networks []netip.Prefix `yaml:"networks" jsonschema:"required"`         // Such as 10.1.0.0/16: clients with these addresses are in it. The longest that fits counts.
}

// Health is how instances are watched.
type Health struct {
	Every   Duration `yaml:"every" jsonschema:"format=positive-duration"`     // Between two checks of one instance; default 1s.
	Timeout Duration `yaml:"timeout" jsonschema:"format=positive-duration"`   // Of one check; default every.
	SIP     string   `yaml:"sip" jsonschema:"enum=options,enum=tcp,enum=off"` // How SIP instances are asked; default options.
	GTPC    string   `yaml:"gtpc" jsonschema:"enum=echo,enum=off"`            // How GTP-C instances are asked; default echo.
	Fail    int      `yaml:"fail" jsonschema:"minimum=1,maximum=1000"`        // Checks that fail in a row until an instance counts as away; default 3.
	Rise    int      `yaml:"rise" jsonschema:"minimum=1,maximum=1000"`        // Checks that succeed in a row until it is back; default 2.
}

// Overload is the gate at an aggregate's ingress.
type Overload struct {
	Target  Duration `yaml:"target" jsonschema:"required,format=positive-duration"` // Mean latency above which fewer transactions are let in.
	Initial float64  `yaml:"initial" jsonschema:"exclusiveMinimum=0"`               // Transactions a second at the start; default: the weights of the type's active instances, added up.
	Min     float64  `yaml:"min" jsonschema:"exclusiveMinimum=0"`                   // Never fewer than this; default 10.
	Max     float64  `yaml:"max" jsonschema:"exclusiveMinimum=0"`                   // Never more.
	Burst   float64  `yaml:"burst" jsonschema:"minimum=1"`                          // Let in at once; default a tenth of initial.
	Invite  string   `yaml:"invite" jsonschema:"enum=provisional,enum=off"`         // SIP: provisional has the time from INVITE to its first response count, beside the latency of other requests; default off, since a function may wait for others before it responds.
}

// Keys are what signs the director's entries in Via, Record-Route and Path.
type Keys struct {
	File    string   `yaml:"file"`                                          // File of keys, one a line: ID, 32 hexadecimal digits, since when it signs. Directors side by side need the same. Default: the state file's name with .keys, which is made if there is none.
	Ringing Duration `yaml:"ringing" jsonschema:"format=positive-duration"` // How long a request may wait for its response: an old key verifies Via for that long; default 10m.
	Dialogs Duration `yaml:"dialogs" jsonschema:"format=positive-duration"` // How long dialogs and registrations last: an old key verifies Record-Route and Path for that long; default 24h.
}

// Control is who may use the control address. Changes over TCP need a token or a client
// certificate. Beyond loopback everything does, and TLS.
type Control struct {
	Socket      string `yaml:"socket"`      // Unix socket for this user, who needs no token there; default: one that vitrine director finds by the control address.
	TokenFile   string `yaml:"token_file"`  // File of tokens, one a line; a request carries one as Authorization: Bearer.
	Certificate string `yaml:"certificate"` // PEM file: the director's certificate and chain.
	Key         string `yaml:"key"`         // PEM file: the certificate's key.
	Clients     string `yaml:"clients"`     // PEM file: certificate authorities of clients, who must then present a certificate.
}

// GTPOptions are options of GTP-C.
type GTPOptions struct {
	RestartCounter uint8 `yaml:"restart_counter" jsonschema:"minimum=0,maximum=255"` // That all instances share; peers drop their sessions when it changes.
	PeerPort       int   `yaml:"peer_port" jsonschema:"minimum=1,maximum=65535"`     // Where peers listen; default 2123.
}

// Load reads and checks a configuration file, with defaults filled in.
func Load(path string) (*Config, error) {
	file, err := document.Read(path, "a configuration")
	if err != nil {
		return nil, err
	}
	c := &Config{file: file}
	if err := file.Root().Decode(c); err != nil {
		return nil, err
	}
	c.setDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	for _, p := range []*string{&c.Control.Socket, &c.Control.TokenFile, &c.Control.Certificate, &c.Control.Key, &c.Control.Clients, &c.State, &c.Keys.File} {
		if *p != "" {
			*p = file.Resolve(*p)
		}
	}
	return c, nil
}

// Path returns the file name as the user gave it.
func (c *Config) Path() string { return c.file.Path }

// Digest returns the SHA-256 of the file, in hexadecimal.
func (c *Config) Digest() string { return c.file.Digest }

// Type returns the aggregate type with that name, or nil.
func (c *Config) Type(name string) *Type {
	return typeOf(c.Types, name)
}

func typeOf(types []Type, name string) *Type {
	for i := range types {
		if types[i].Name == name {
			return &types[i]
		}
	}
	return nil
}

func (c *Config) typeNames() []string { return names(c.Types) }

// gate returns the overload options of the type; nil: none.
func (c *Config) gate(t *Type) *Overload {
	if t.Overload != nil {
		return t.Overload
	}
	return c.Overload
}

func join(errs []*vitrine.BadInput) error {
	all := make([]error, len(errs))
	for i, e := range errs {
		all[i] = e
	}
	return errors.Join(all...)
}

func index(i int) string { return fmt.Sprint(i) }
