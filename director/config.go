package director

import (
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
	S1AP = "s1ap"
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
	Listen     Listen         `yaml:"listen" jsonschema:"required"`                       // Listening addresses. Beyond loopback, the control address needs tokens or client certificates.
	Workers    int            `yaml:"workers" jsonschema:"minimum=1,maximum=256"`         // Goroutines that steer; default: one per CPU.
	Transition Duration       `yaml:"transition" jsonschema:"format=positive-duration"`   // How long a transaction may still have messages after its table was replaced; default 64 x T1 = 32s, at most 15m. Set it longer if INVITEs ring longer.
	State      string         `yaml:"state"`                                              // File that outlives a restart: instances, epoch, and the previous table. Default: the configuration file's name with .state.
	Memory     Memory         `yaml:"memory"`                                             // Bounds of the director's memory.
	Types      []Type         `yaml:"types" jsonschema:"required,minItems=1,maxItems=64"` // The aggregate types.
	Rules      []Rule         `yaml:"rules"`                                              // Which messages go to which type; the first rule that matches counts.
	Instances  []Instance     `yaml:"instances"`                                          // The instances at the start; REST can add more.
	Regions    []Region       `yaml:"regions"`                                            // The regions of clients.
	Trusted    []netip.Prefix `yaml:"trusted"`                                            // SIP: networks, such as 10.2.0.0/24, that instances also send from, besides their own IP addresses. Requests from there by the director's Path or Record-Route go outward, and responses from there count.
	Health     Health         `yaml:"health"`                                             // How instances are checked.
	Panic      Percent        `yaml:"panic" jsonschema:"format=percent,example=50%"`      // If more than this share of a type's active instances is away, or all of them, all count as up. Left out or off: instances that are away get nothing.
	Overload   *Overload      `yaml:"overload"`                                           // The gate at the ingress of each type; left out: no gate.
	Quota      Quotas         `yaml:"quota"`                                              // A limit of the requests from each source; left out: none.
	Feedback   bool           `yaml:"feedback"`                                           // SIP: ask instances for overload feedback (RFC 7339).
	Bounded    float64        `yaml:"bounded_load" jsonschema:"minimum=1"`                // An instance with more than this many times its share of the transactions in flight gets no new keys. Left out: off.
	Keys       Keys           `yaml:"keys"`                                               // SIP: the keys that sign the director's entries in Via, Record-Route and Path.
	Control    Control        `yaml:"control"`                                            // Who may use the control address.
	GTPC       GTPOptions     `yaml:"gtpc"`                                               // Options of GTP-C.
	S1AP       S1APOptions    `yaml:"s1ap"`                                               // Options of S1AP: what eNodeBs see.

	file document.File
}

// Listen is where the director listens.
type Listen struct {
	SIP       []string `yaml:"sip"`                                                  // Such as udp://127.0.0.1:5060 or tcp://[::1]:5060.
	GTPC      []string `yaml:"gtpc"`                                                 // Such as udp://127.0.0.1:2123.
	S1AP      []string `yaml:"s1ap"`                                                 // Such as tcp://127.0.0.1:36412, or sctp://127.0.0.1:36412 where the kernel has SCTP.
	Advertise string   `yaml:"advertise"`                                            // SIP: the host in Via, Record-Route and Path, if it is not the address; the same for directors side by side. An IP address counts for the listeners of its family only.
	Names     []string `yaml:"names"`                                                // SIP: further hosts that name the director in Route and Request-URI.
	Control   string   `yaml:"control" jsonschema:"required,example=127.0.0.1:8090"` // REST API and /metrics.
}

// Memory bounds the director's memory under any traffic.
type Memory struct {
	Keys         int `yaml:"keys" jsonschema:"minimum=8,maximum=100000000"`         // Keys that each worker remembers for a transition, 8 bytes each; default 262144.
	Transactions int `yaml:"transactions" jsonschema:"minimum=8,maximum=100000000"` // Transactions in flight that are timed, 8 bytes each; default 262144.
	Connections  int `yaml:"connections" jsonschema:"minimum=10,maximum=1000000"`   // SIP over TCP: maximum number of connections; a tenth is reserved for instances; default 10000.
	Sources      int `yaml:"sources" jsonschema:"minimum=8,maximum=100000000"`      // Sources that a quota remembers, 26 bytes each; default 65536 for each protocol.
	Sessions     int `yaml:"sessions" jsonschema:"minimum=8,maximum=100000000"`     // GTP-C: TEIDs of peers, and as many of instances without a prefix, 56 bytes each; default 1048576. A UE has one of each. Give twice the number of UEs.
	Exchanges    int `yaml:"exchanges" jsonschema:"minimum=64,maximum=2097152"`     // GTP-C: requests whose answer may still come, for 15 s, 120 bytes each; default 262144.
	PerSource    int `yaml:"connections_per_source" jsonschema:"minimum=1"`         // SIP over TCP: maximum number of connections with one IP address (IPv6: one /64) that is not an instance's; default a tenth of connections, at least 16.
}

// A Type is an aggregate type.
type Type struct {
	Name      string    `yaml:"name" jsonschema:"required,format=name"`                      // Such as registration.
	Protocol  string    `yaml:"protocol" jsonschema:"required,enum=sip,enum=gtpc,enum=s1ap"` // The protocol of its messages.
	Transport string    `yaml:"transport" jsonschema:"enum=udp,enum=tcp,enum=sctp"`          // The transport to instances. SIP: udp or tcp; default udp. S1AP: tcp or sctp, which the kernel must have; default tcp.
	Drain     string    `yaml:"drain" jsonschema:"enum=transaction,enum=dialog"`             // What draining waits for; default transaction. S1AP: a draining instance always keeps its connections; with dialog, it also gets the new connections of its UEs.
	Spread    bool      `yaml:"spread"`                                                      // S1AP: each new connection goes by the weights, whichever instance the UE's identity names. The instances must share their UEs through a store.
	Number    uint8     `yaml:"number" jsonschema:"minimum=1,maximum=7"`                     // GTP-C: its number in the TEIDs that its instances hand out. Left out: the instances use no prefix, and the director learns their TEIDs.
	Panic     *Percent  `yaml:"panic" jsonschema:"format=percent"`                           // Its own share, instead of the file's.
	Overload  *Overload `yaml:"overload"`                                                    // Its own gate, instead of the file's.
	Rooms     []Room    `yaml:"rooms"`                                                       // Regions that keep only a share of their own traffic.
}

// A Room says how much of its own traffic a region keeps.
type Room struct {
	Region string  `yaml:"region" jsonschema:"required,format=name"`        // The region's name.
	Share  float64 `yaml:"share" jsonschema:"required,minimum=0,maximum=1"` // The share of its clients' keys that stays in the region, 0 to 1; the others go to all regions.
}

// A Rule maps messages to an aggregate type.
type Rule struct {
	Method     string `yaml:"method" json:"method,omitempty"`                                                                                                                                                                         // SIP: the request's method, such as REGISTER; left out: any.
	Event      string `yaml:"event" json:"event,omitempty"`                                                                                                                                                                           // SIP: the event package of SUBSCRIBE, NOTIFY and PUBLISH, such as reg.
	Key        string `yaml:"key" json:"key,omitempty" jsonschema:"enum=call-id,enum=from,enum=to,enum=request-uri"`                                                                                                                  // SIP: the field to steer by; default call-id.
	Message    string `yaml:"message" json:"message,omitempty"`                                                                                                                                                                       // GTP-C: the message's name, such as create-session. S1AP: attach, detach, service-request, extended-service-request or tracking-area-update. Left out: any.
	Cause      string `yaml:"cause" json:"cause,omitempty" jsonschema:"enum=emergency,enum=high-priority-access,enum=mt-access,enum=mo-signalling,enum=mo-data,enum=delay-tolerant-access,enum=mo-voice-call,enum=mo-exception-data"` // S1AP: why the UE connects, by the RRC establishment cause; left out: any.
	Interface  string `yaml:"interface" json:"interface,omitempty" jsonschema:"enum=s3,enum=s4,enum=s5,enum=s10,enum=s11,enum=s16"`                                                                                                   // GTP-C: the interface of the sender's F-TEID; left out: any.
	Relocation bool   `yaml:"relocation" json:"relocation,omitempty"`                                                                                                                                                                 // GTP-C: only create-session messages that move a session to another S-GW.
	Type       string `yaml:"type" json:"type" jsonschema:"required,format=name"`                                                                                                                                                     // The aggregate type that serves the messages.
}

// An Instance is one running copy of an aggregate.
type Instance struct {
	Name    string         `yaml:"name" jsonschema:"required,format=name"`                                              // Unique in the whole file.
	Type    string         `yaml:"type" jsonschema:"required,format=name"`                                              // The aggregate type.
	Address netip.AddrPort `yaml:"address" jsonschema:"required,example=127.0.0.1:5061"`                                // The address of its ingress.
	Weight  float64        `yaml:"weight" jsonschema:"exclusiveMinimum=0"`                                              // Its capacity, such as transactions per second; default 1.
	Region  string         `yaml:"region" jsonschema:"format=name"`                                                     // The region of the instance.
	State   vitrine.State  `yaml:"state" jsonschema:"enum=starting,enum=active,enum=draining,enum=down,default=active"` // Which transactions it gets.
	ID      uint16         `yaml:"id" jsonschema:"minimum=1,maximum=65535"`                                             // Its number within the type; default: a hash of its name. Directors side by side must agree on it.
}

// A Region is a set of client networks.
type Region struct {
	Name     string         `yaml:"name" jsonschema:"required,format=name"` // The name that instances use.
	Networks []netip.Prefix `yaml:"networks" jsonschema:"required"`         // Such as 10.1.0.0/16: clients with these addresses are in the region. The longest prefix that matches counts.
}

// Health is how instances are checked.
type Health struct {
	Every   Duration `yaml:"every" jsonschema:"format=positive-duration"`     // Time between two checks of an instance; default 1s.
	Timeout Duration `yaml:"timeout" jsonschema:"format=positive-duration"`   // Time limit of a check; default every.
	SIP     string   `yaml:"sip" jsonschema:"enum=options,enum=tcp,enum=off"` // How SIP instances are checked; default options.
	GTPC    string   `yaml:"gtpc" jsonschema:"enum=echo,enum=off"`            // How GTP-C instances are checked; default echo.
	S1AP    string   `yaml:"s1ap" jsonschema:"enum=tcp,enum=off"`             // How S1AP instances are checked; default tcp: by a connection of the type's transport.
	Fail    int      `yaml:"fail" jsonschema:"minimum=1,maximum=1000"`        // Failed checks in a row until an instance counts as away; default 3.
	Rise    int      `yaml:"rise" jsonschema:"minimum=1,maximum=1000"`        // Successful checks in a row until it counts as up again; default 2.
}

// Overload is the gate at an aggregate's ingress.
type Overload struct {
	Target  Duration `yaml:"target" jsonschema:"required,format=positive-duration"` // Mean latency above which the gate admits fewer transactions.
	Initial float64  `yaml:"initial" jsonschema:"exclusiveMinimum=0"`               // Transactions per second at the start; default: the sum of the weights of the type's active instances.
	Min     float64  `yaml:"min" jsonschema:"exclusiveMinimum=0"`                   // Lower bound of transactions per second; default 10, or a tenth of max if that is lower.
	Max     float64  `yaml:"max" jsonschema:"exclusiveMinimum=0"`                   // Upper bound of transactions per second; left out: none.
	Burst   float64  `yaml:"burst" jsonschema:"minimum=1,maximum=1000000"`          // Transactions admitted at once; default those of a tenth of a second at the present rate, at least one.
	Invite  string   `yaml:"invite" jsonschema:"enum=provisional,enum=off"`         // SIP: with provisional, the time from INVITE to its first response other than 100 Trying counts, besides the latency of other requests. Default off, because a function may wait for others before it responds.
}

// Quotas are the quotas of each protocol.
type Quotas struct {
	SIP  *Quota `yaml:"sip"`  // Limits requests that are neither ACK nor within a dialog. Instances and trusted networks have no quota.
	GTPC *Quota `yaml:"gtpc"` // Limits messages that begin an exchange, except Echo. Instances have no quota.
	S1AP *Quota `yaml:"s1ap"` // Limits first messages of UEs and path switches.
}

// A Quota limits the requests from each source: an IPv4 address, or a /64 of IPv6.
type Quota struct {
	Rate  float64 `yaml:"rate" jsonschema:"required,exclusiveMinimum=0"` // Requests per second.
	Burst float64 `yaml:"burst" jsonschema:"minimum=1"`                  // Requests at once; default rate, at least 1.
}

// Keys are the keys that sign the director's entries in Via, Record-Route and Path.
type Keys struct {
	File    string   `yaml:"file"`                                          // File of keys, one per line: ID, 32 hexadecimal digits, and the time from which it signs. Directors side by side need the same file. Default: the state file's name with .keys, which is created if it is missing.
	Ringing Duration `yaml:"ringing" jsonschema:"format=positive-duration"` // How long a request may wait for its response: an old key verifies Via for that time; at least transition; default 10m, or transition if that is longer.
	Dialogs Duration `yaml:"dialogs" jsonschema:"format=positive-duration"` // How long dialogs and registrations last: an old key verifies Record-Route and Path for that time; default 24h.
}

// Control says who may use the control address. Changes over TCP need a token or a
// client certificate. Beyond loopback, all requests do, and TLS.
type Control struct {
	Socket      string `yaml:"socket"`      // Unix socket for the director's own user, who needs no token there; default: a path that vitrine director finds by the control address.
	TokenFile   string `yaml:"token_file"`  // File of tokens, one per line; a request carries one as Authorization: Bearer.
	Certificate string `yaml:"certificate"` // PEM file: the director's certificate and chain.
	Key         string `yaml:"key"`         // PEM file: the certificate's key.
	Clients     string `yaml:"clients"`     // PEM file: certificate authorities of clients, who must then present a certificate.
}

// GTPOptions are the options of GTP-C.
type GTPOptions struct {
	RestartCounter uint8          `yaml:"restart_counter" jsonschema:"minimum=0,maximum=255"` // The restart counter that all instances share; peers drop their sessions when it changes.
	PeerPort       int            `yaml:"peer_port" jsonschema:"minimum=1,maximum=65535"`     // The port that peers listen on; default 2123.
	Peers          []netip.Prefix `yaml:"peers" jsonschema:"minItems=1"`                      // Networks of peers, such as 10.3.0.0/16: those that they send from, and those of the addresses in their F-TEIDs. Others get no answer. Left out: everybody is a peer.
}

// S1APOptions are the options of S1AP: the MME that eNodeBs see, and limits.
type S1APOptions struct {
	Name      string         `yaml:"name" jsonschema:"maxLength=150"`                                // The MME name; default vitrine-pool.
	Network   string         `yaml:"network" jsonschema:"example=00101"`                             // Country and network code, five or six digits; default 00101.
	Group     uint16         `yaml:"group" jsonschema:"minimum=1,maximum=65535"`                     // The MME group of all instances; default 1.
	Codes     []int          `yaml:"codes" jsonschema:"minItems=1,maxItems=256"`                     // The MME codes that eNodeBs send to this director; default all.
	Capacity  *uint8         `yaml:"relative_capacity" jsonschema:"minimum=0,maximum=255"`           // The relative MME capacity among the pools that an eNodeB has; default 255.
	ENodeBs   []netip.Prefix `yaml:"enodebs" jsonschema:"minItems=1"`                                // Networks that eNodeBs connect from, such as 10.4.0.0/16; left out: any.
	Most      int            `yaml:"max_enodebs" jsonschema:"minimum=1,maximum=65536"`               // Maximum number of associations with eNodeBs; each has one more with each instance. Default 1024.
	PerSource int            `yaml:"associations_per_source" jsonschema:"minimum=1"`                 // Maximum number of associations with one IP address (IPv6: one /64); default 64.
	UEs       int            `yaml:"max_connections" jsonschema:"minimum=1,maximum=100000000"`       // Maximum number of connected UEs, 160 bytes each; one IP address (IPv6: one /64) may have a quarter of them; default 1048576.
	PerENodeB int            `yaml:"connections_per_enodeb" jsonschema:"minimum=1,maximum=16777216"` // Maximum number of connected UEs of one eNodeB; default 16384.
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
