#!/bin/sh
# install-edge.sh for the edge of an aggregate, which has one registrar: that with the
# edge's number. REGISTRAR: address:port of the registrars of all aggregates, with commas.
set -eu
REGISTRAR=$(echo "$REGISTRAR" | cut -d , -f "$VITRINE_INDEX")
export REGISTRAR
exec sh "$VITRINE_SPEC/install-edge.sh"
