package client

import (
	"context"
	"net/http"
)

// A Type holds the counts of an aggregate type since the director's start.
type Type struct {
	Name      string            `json:"name"`
	HighestID uint16            `json:"highest_id"`        // Highest ID that an instance may have; 0: not known, because the director is of an earlier version.
	Drain     string            `json:"drain,omitempty"`   // What draining waits for: transaction or dialog; empty: not known, as above.
	Refused   map[string]uint64 `json:"refused,omitempty"` // Messages that no instance got, by cause, such as no_instance and overloaded.
}

// Types returns the counts of the types.
func (c *Client) Types(ctx context.Context) (all []Type, err error) {
	return all, c.call(ctx, http.MethodGet, "/v1/types", nil, &all)
}
