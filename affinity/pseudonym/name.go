package pseudonym

import (
	"strings"

	"vitrine/affinity/message"
)

// maxNames bounds the cache of pseudonyms of message names.
const maxNames = 1 << 14

// Name returns the name of a message with possible identities replaced. In
// telecommunication protocols the words of names come from the specifications. In web and
// store protocols a user can be part of a path or of a collection, so only known words
// stay.
func (k *Key) Name(protocol message.Protocol, name string) string {
	switch protocol {
	case message.SIP, message.HTTP, message.HTTP2, message.Mongo:
	default:
		return name
	}
	hidden, ok := k.names[name]
	if !ok {
		hidden = k.words(name)
		if len(k.names) < maxNames {
			k.names[name] = hidden
		}
	}
	return hidden
}

// Form returns the form of a store's keys with possible identities replaced.
func (k *Key) Form(form string) string { return k.words(form) }

// words replaces the unknown words of a text.
func (k *Key) words(text string) string {
	const between = " /:"
	var b strings.Builder
	for len(text) > 0 {
		end := strings.IndexAny(text, between)
		if end < 0 {
			end = len(text)
		}
		word := text[:end]
		if !isWord(word) {
			word = k.text("word", word)
		}
		b.WriteString(word)
		if end < len(text) {
			b.WriteByte(text[end])
			end++
		}
		text = text[end:]
	}
	return b.String()
}

// isWord reports whether a word of a name is part of a known interface: a method or
// status, a part of a path of the reference IMS, of Vitrine's store or of a service of the
// 5G core (TS 29.501 clause 4.4), or a command or collection of MongoDB.
func isWord(word string) bool {
	const status = 3 // digits of a status
	if len(word) <= status && strings.Trim(word, "0123456789") == "" {
		return true
	}
	switch word {
	case "{}", "{}*", "reply", "(other)", "(path", "lost)", "push", "sip", "sips", "tel",
		"REGISTER", "INVITE", "ACK", "CANCEL", "BYE", "OPTIONS", "PRACK", "SUBSCRIBE", "NOTIFY", "PUBLISH", "INFO", "REFER", "MESSAGE", "UPDATE", // SIP
		"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "TRACE", "PATCH", "PRI": // RFC 9110 section 9, RFC 5789
		return true
	case "impi", "impu", "av", "aka", "digest", "reg-data", "registration-status", "location", "ping", "metrics", "ready", "call-id", "org.etsi.ngn.simservs",
		"simservs.xml", "simservs", "users", "global", "timers", "kv", "nudsf-dr", "records", "blocks", "meta", "meta-schemas", "timer", "reg", "realm",
		"sessions", "session", "av-by-user", "sub", "subs", "subs-to-notify", "bindings", "subscriptions", "status":
		return true
	case "v1", "v2", "v3", "nausf-auth", "nudm-sdm", "nudm-ueau", "nudm-uecm", "nudr-dr", "namf-comm", "namf-evts", "namf-loc", "namf-mt", "nsmf-pdusession",
		"npcf-am-policy-control", "npcf-smpolicycontrol", "npcf-policyauthorization", "npcf-ue-policy-control", "nnrf-nfm", "nnrf-disc", "nnssf-nsselection",
		"nbsf-management", "nchf-convergedcharging", "nudm-ee", "nudm-pp", "oauth2", "token", "nf-instances", "nf-status-notify",
		"ue-authentications", "5g-aka-confirmation", "eap-session", "ue-contexts", "n1-n2-messages", "transfer", "transfer-update", "release", "modify",
		"sm-contexts", "pdu-sessions", "sm-policies", "policies", "update", "delete", "subscription-data", "authentication-data", "authentication-subscription",
		"authentication-status", "context-data", "provisioned-data", "am-data", "sm-data", "smf-select-data", "ue-context-in-smf-data", "nssai", "sdm-subscriptions",
		"amf-3gpp-access", "smf-registrations", "security-information", "generate-auth-data", "auth-events", "policy-data", "ues", "app-sessions", "pcfBindings",
		"network-slice-information", "sm-context-status", "chargingdata", "events-subscription":
		return true
	case "find", "insert", "aggregate", "count", "distinct", "getMore", "findAndModify", "findandmodify", "hello", "isMaster", "ismaster", "killCursors",
		"endSessions", "saslStart", "saslContinue", "subscribers", "accounts", "profiles", "authentication", "identities", "admin", "$db":
		return true
	}
	return false
}
