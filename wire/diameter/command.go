package diameter

import "strconv"

// A Command is the code of a command: 24 bits, shared by a request and its answer.
// Codes are unique over all applications (section 3.1).
type Command uint32

// The commands of base, credit control (Gy, Gx), accounting (Rf), Rx, Cx, Sh and
// S6a.
const (
	CapabilitiesExchange Command = 257
	ReAuth               Command = 258
	AA                   Command = 265 // Rx (TS 29.214 clause 5.6)
	Accounting           Command = 271 // Rf
	CreditControl        Command = 272 // Gy, Gx
	AbortSession         Command = 274
	SessionTermination   Command = 275
	DeviceWatchdog       Command = 280
	DisconnectPeer       Command = 282

	UserAuthorization       Command = 300 // Cx (TS 29.229 clause 6.1)
	ServerAssignment        Command = 301
	LocationInfo            Command = 302
	MultimediaAuth          Command = 303
	RegistrationTermination Command = 304
	PushProfile             Command = 305

	UserData               Command = 306 // Sh (TS 29.329 clause 6.1)
	ProfileUpdate          Command = 307
	SubscribeNotifications Command = 308
	PushNotification       Command = 309

	UpdateLocation            Command = 316 // S6a (TS 29.272 clause 7.2)
	CancelLocation            Command = 317
	AuthenticationInformation Command = 318
	InsertSubscriberData      Command = 319
	DeleteSubscriberData      Command = 320
	PurgeUE                   Command = 321
	Reset                     Command = 322
	Notify                    Command = 323
	MEIdentityCheck           Command = 324 // S13
)

// names are the names of the commands, without "Request" or "Answer", by code.
var names = [...]string{
	CapabilitiesExchange:      "Capabilities-Exchange",
	ReAuth:                    "Re-Auth",
	AA:                        "AA",
	Accounting:                "Accounting",
	CreditControl:             "Credit-Control",
	AbortSession:              "Abort-Session",
	SessionTermination:        "Session-Termination",
	DeviceWatchdog:            "Device-Watchdog",
	DisconnectPeer:            "Disconnect-Peer",
	UserAuthorization:         "User-Authorization",
	ServerAssignment:          "Server-Assignment",
	LocationInfo:              "Location-Info",
	MultimediaAuth:            "Multimedia-Auth",
	RegistrationTermination:   "Registration-Termination",
	PushProfile:               "Push-Profile",
	UserData:                  "User-Data",
	ProfileUpdate:             "Profile-Update",
	SubscribeNotifications:    "Subscribe-Notifications",
	PushNotification:          "Push-Notification",
	UpdateLocation:            "Update-Location",
	CancelLocation:            "Cancel-Location",
	AuthenticationInformation: "Authentication-Information",
	InsertSubscriberData:      "Insert-Subscriber-Data",
	DeleteSubscriberData:      "Delete-Subscriber-Data",
	PurgeUE:                   "Purge-UE",
	Reset:                     "Reset",
	Notify:                    "Notify",
	MEIdentityCheck:           "ME-Identity-Check",
}

// name returns the name of a command's request or answer.
func (c Command) name(request bool) string {
	switch {
	case int(c) >= len(names) || names[c] == "":
		return "Command-" + strconv.Itoa(int(c))
	case request:
		return names[c] + "-Request"
	}
	return names[c] + "-Answer"
}

// An Application is the identifier of an application (section 2.4).
type Application uint32

// The named applications.
const (
	Base           Application = 0
	BaseAccounting Application = 3 // Rf
	CreditCharging Application = 4 // Gy, Ro
	Cx             Application = 16777216
	Sh             Application = 16777217
	Rx             Application = 16777236
	Gx             Application = 16777238
	S6a            Application = 16777251
	S13            Application = 16777252
	Relay          Application = 0xffffffff
)

// String returns the name of the interface that uses the application, in lower
// case.
func (a Application) String() string {
	switch a {
	case Base:
		return "base"
	case BaseAccounting:
		return "rf"
	case CreditCharging:
		return "gy"
	case Cx:
		return "cx"
	case Sh:
		return "sh"
	case Rx:
		return "rx"
	case Gx:
		return "gx"
	case S6a:
		return "s6a"
	case S13:
		return "s13"
	case Relay:
		return "relay"
	}
	return "application-" + strconv.FormatUint(uint64(a), 10)
}
