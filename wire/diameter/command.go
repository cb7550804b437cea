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

// names returns the names of a command's request and answer; empty for a
// command without a name here.
func (c Command) names() (request, answer string) {
	switch c {
	case CapabilitiesExchange:
		return "Capabilities-Exchange-Request", "Capabilities-Exchange-Answer"
	case ReAuth:
		return "Re-Auth-Request", "Re-Auth-Answer"
	case AA:
		return "AA-Request", "AA-Answer"
	case Accounting:
		return "Accounting-Request", "Accounting-Answer"
	case CreditControl:
		return "Credit-Control-Request", "Credit-Control-Answer"
	case AbortSession:
		return "Abort-Session-Request", "Abort-Session-Answer"
	case SessionTermination:
		return "Session-Termination-Request", "Session-Termination-Answer"
	case DeviceWatchdog:
		return "Device-Watchdog-Request", "Device-Watchdog-Answer"
	case DisconnectPeer:
		return "Disconnect-Peer-Request", "Disconnect-Peer-Answer"
	}
	if c < UpdateLocation {
		return c.imsNames()
	}
	return c.s6aNames()
}

// imsNames returns the names of the commands of Cx and Sh.
func (c Command) imsNames() (request, answer string) {
	switch c {
	case UserAuthorization:
		return "User-Authorization-Request", "User-Authorization-Answer"
	case ServerAssignment:
		return "Server-Assignment-Request", "Server-Assignment-Answer"
	case LocationInfo:
		return "Location-Info-Request", "Location-Info-Answer"
	case MultimediaAuth:
		return "Multimedia-Auth-Request", "Multimedia-Auth-Answer"
	case RegistrationTermination:
		return "Registration-Termination-Request", "Registration-Termination-Answer"
	case PushProfile:
		return "Push-Profile-Request", "Push-Profile-Answer"
	case UserData:
		return "User-Data-Request", "User-Data-Answer"
	case ProfileUpdate:
		return "Profile-Update-Request", "Profile-Update-Answer"
	case SubscribeNotifications:
		return "Subscribe-Notifications-Request", "Subscribe-Notifications-Answer"
	case PushNotification:
		return "Push-Notification-Request", "Push-Notification-Answer"
	}
	return "", ""
}

func (c Command) s6aNames() (request, answer string) {
	switch c {
	case UpdateLocation:
		return "Update-Location-Request", "Update-Location-Answer"
	case CancelLocation:
		return "Cancel-Location-Request", "Cancel-Location-Answer"
	case AuthenticationInformation:
		return "Authentication-Information-Request", "Authentication-Information-Answer"
	case InsertSubscriberData:
		return "Insert-Subscriber-Data-Request", "Insert-Subscriber-Data-Answer"
	case DeleteSubscriberData:
		return "Delete-Subscriber-Data-Request", "Delete-Subscriber-Data-Answer"
	case PurgeUE:
		return "Purge-UE-Request", "Purge-UE-Answer"
	case Reset:
		return "Reset-Request", "Reset-Answer"
	case Notify:
		return "Notify-Request", "Notify-Answer"
	case MEIdentityCheck:
		return "ME-Identity-Check-Request", "ME-Identity-Check-Answer"
	}
	return "", ""
}

// name returns the name of a command's request or answer.
func (c Command) name(request bool) string {
	name, answer := c.names()
	if !request {
		name = answer
	}
	if name == "" {
		return "Command-" + strconv.Itoa(int(c))
	}
	return name
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
