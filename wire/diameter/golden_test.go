package diameter_test

import (
	"encoding/binary"

	"vitrine/wire/diameter"
)

// avp appends an AVP with its padding.
func avp(b []byte, vendor diameter.Vendor, code diameter.Code, value ...byte) []byte {
	flags, size := diameter.Mandatory, 8+len(value)
	if vendor != 0 {
		flags, size = flags|diameter.VendorSpecific, size+4
	}
	b = binary.BigEndian.AppendUint32(b, uint32(code))
	b = binary.BigEndian.AppendUint32(b, uint32(flags)<<24|uint32(size))
	if vendor != 0 {
		b = binary.BigEndian.AppendUint32(b, uint32(vendor))
	}
	b = append(b, value...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func text(b []byte, code diameter.Code, v string) []byte { return avp(b, 0, code, []byte(v)...) }

func number(b []byte, code diameter.Code, v uint32) []byte {
	return avp(b, 0, code, binary.BigEndian.AppendUint32(nil, v)...)
}

func group(b []byte, code diameter.Code, inner ...[]byte) []byte {
	var all []byte
	for _, i := range inner {
		all = append(all, i...)
	}
	return avp(b, 0, code, all...)
}

func message(f diameter.Flags, c diameter.Command, a diameter.Application, avps ...[]byte) []byte {
	b := []byte{1, 0, 0, 0}
	b = binary.BigEndian.AppendUint32(b, uint32(f)<<24|uint32(c))
	b = binary.BigEndian.AppendUint32(b, uint32(a))
	b = binary.BigEndian.AppendUint32(b, 0x01020304)
	b = binary.BigEndian.AppendUint32(b, 0xfedcba98)
	for _, v := range avps {
		b = append(b, v...)
	}
	binary.BigEndian.PutUint32(b, 1<<24|uint32(len(b)))
	return b
}

// want holds the values in a message; an empty field means that the message lacks it.
type want struct {
	name                                       string
	session, origin, destination, user, public string
	result                                     diameter.Result
	kind                                       diameter.RequestType
	imsi, msisdn                               string
}

type sample struct {
	octets []byte
	want
}

const (
	imsi = "001010123456789"
	impu = "sip:alice@ims.example"
	impi = "alice@ims.example"
)

// golden returns one message or more of every interface that is named.
func golden() []sample {
	const session = "mme.example;1876543210;102"
	host := text(text(text(nil, diameter.SessionID, session), diameter.OriginHost, "mme.example"), diameter.OriginRealm, "example")
	destination := text(nil, diameter.DestinationHost, "hss.example")
	user := text(nil, diameter.UserName, imsi)
	public := avp(nil, diameter.ThreeGPP, diameter.PublicIdentity, []byte(impu)...)
	subscription := func(of diameter.SubscriptionType, data string) []byte {
		return group(nil, diameter.SubscriptionID, number(nil, diameter.SubscriptionIDType, uint32(of)), text(nil, diameter.SubscriptionIDData, data))
	}
	experimental := func(code uint32) []byte {
		return group(nil, diameter.ExperimentalResult, number(nil, diameter.VendorID, uint32(diameter.ThreeGPP)), number(nil, diameter.ExperimentalResultCode, code))
	}
	const ask = diameter.Request | diameter.Proxiable
	common := want{session: session, origin: "mme.example"}
	with := func(name string, set func(*want)) want {
		w := common
		w.name = name
		set(&w)
		return w
	}
	return []sample{
		{
			message(diameter.Request, diameter.CapabilitiesExchange, diameter.Base, text(nil, diameter.OriginHost, "a.example"), text(nil, diameter.OriginRealm, "example"),
				avp(nil, 0, diameter.HostIPAddress, 0, 1, 192, 0, 2, 1), number(nil, diameter.VendorID, 0), text(nil, 269, "vitrine")),
			want{name: "Capabilities-Exchange-Request", origin: "a.example"},
		},
		{
			message(0, diameter.DeviceWatchdog, diameter.Base, number(nil, diameter.ResultCode, 2001), text(nil, diameter.OriginHost, "abc.example"), text(nil, diameter.OriginRealm, "example")),
			want{name: "Device-Watchdog-Answer", origin: "abc.example", result: diameter.Result{Code: 2001}},
		},
		{
			message(ask, diameter.UpdateLocation, diameter.S6a, host, destination, user),
			with("Update-Location-Request", func(w *want) { w.destination, w.user = "hss.example", imsi }),
		},
		{
			message(diameter.Proxiable, diameter.AuthenticationInformation, diameter.S6a, host, experimental(5001)),
			with("Authentication-Information-Answer", func(w *want) { w.result = diameter.Result{Vendor: diameter.ThreeGPP, Code: 5001} }),
		},
		{
			message(ask|diameter.Retransmitted, diameter.MultimediaAuth, diameter.Cx, host, text(nil, diameter.UserName, impi), public),
			with("Multimedia-Auth-Request", func(w *want) { w.user, w.public = impi, impu }),
		},
		{
			message(ask, diameter.UserData, diameter.Sh, host, avp(nil, diameter.ThreeGPP, diameter.UserIdentity, public...)),
			with("User-Data-Request", func(w *want) { w.public = impu }),
		},
		{
			message(ask, diameter.CreditControl, diameter.Gx, host, number(nil, diameter.CCRequestType, 1), number(nil, diameter.CCRequestNumber, 0),
				subscription(diameter.E164, "8190123456"), subscription(diameter.IMSI, imsi)),
			with("Credit-Control-Request", func(w *want) { w.kind, w.imsi, w.msisdn = diameter.Initial, imsi, "8190123456" }),
		},
		{
			message(ask, diameter.CreditControl, diameter.CreditCharging, host, number(nil, diameter.CCRequestType, 4), subscription(diameter.IMSI, imsi)),
			with("Credit-Control-Request", func(w *want) { w.kind, w.imsi = diameter.Event, imsi }),
		},
		{
			message(ask, diameter.AA, diameter.Rx, host, subscription(diameter.E164, "8190123456")),
			with("AA-Request", func(w *want) { w.msisdn = "8190123456" }),
		},
		{
			message(diameter.Proxiable|diameter.Error, diameter.Accounting, diameter.BaseAccounting, host, number(nil, diameter.ResultCode, 3004)),
			with("Accounting-Answer", func(w *want) { w.result = diameter.Result{Code: 3004} }),
		},
		{
			message(ask, diameter.SessionTermination, diameter.Relay, host),
			with("Session-Termination-Request", func(*want) {}),
		},
	}
}

// found returns the values in a message.
func found(m *diameter.Message) want {
	w := want{
		name: m.Name(), session: string(value(m, diameter.SessionID)),
		origin: string(value(m, diameter.OriginHost)), destination: string(value(m, diameter.DestinationHost)),
		user: string(value(m, diameter.UserName)), public: string(publicIdentity(m)),
		imsi: string(identity(m, diameter.IMSI)), msisdn: string(identity(m, diameter.E164)),
	}
	w.result, _ = m.Result()
	if v := value(m, diameter.CCRequestType); len(v) == 4 {
		w.kind = diameter.RequestType(binary.BigEndian.Uint32(v))
	}
	return w
}

// value returns the value of the first AVP of the IETF with a code, nil for none.
func value(m *diameter.Message, code diameter.Code) []byte {
	if a := m.Each(); a.Find(0, code) {
		return a.Value
	}
	return nil
}

// publicIdentity returns the public identity, nil for none. It is in the message itself (Cx) or inside
// User-Identity (Sh).
func publicIdentity(m *diameter.Message) []byte {
	a := m.Each()
	if user := m.Each(); user.Find(diameter.ThreeGPP, diameter.UserIdentity) {
		a = diameter.Group(user.Value)
	}
	if a.Find(diameter.ThreeGPP, diameter.PublicIdentity) {
		return a.Value
	}
	return nil
}

// identity returns the first subscription identity of a type, nil for none.
func identity(m *diameter.Message, of diameter.SubscriptionType) []byte {
	for a := m.Each(); a.Find(0, diameter.SubscriptionID); {
		kind, data := diameter.Group(a.Value), diameter.Group(a.Value)
		if kind.Find(0, diameter.SubscriptionIDType) && len(kind.Value) == 4 &&
			diameter.SubscriptionType(binary.BigEndian.Uint32(kind.Value)) == of && data.Find(0, diameter.SubscriptionIDData) {
			return data.Value
		}
	}
	return nil
}
