// Package catalog holds functions that can be deployed and measured: a folder each, with a README.
package catalog

import "embed"

// Scripts has the install scripts that plans of package papers use too, and the configurations
// that these copy, in the layout of this folder.
//
//go:embed ims-reference-store/*.sh ims-kamailio/*.sh ims-kamailio/*.cfg kamailio-sidecar/*.cfg
var Scripts embed.FS
