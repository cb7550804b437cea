package load

import "strconv"

// Codes makes causes of failure from the codes of a protocol, such as 503. It makes each
// text once.
type Codes struct {
	Prefix string
	texts  [700]string // SIP has the highest codes: 100 to 699
}

// Text returns the cause of a code, 0 to 699.
func (c *Codes) Text(code int) string {
	if c.texts[code] == "" {
		c.texts[code] = c.Prefix + strconv.Itoa(code)
	}
	return c.texts[code]
}
