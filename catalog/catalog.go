// Package catalog holds functions that can be deployed and measured: a folder each, with a README.
package catalog

import "embed"

// Scripts has the install scripts that plans of package papers use too, in the layout of this folder.
//
//go:embed ims-reference-store/*.sh
var Scripts embed.FS
