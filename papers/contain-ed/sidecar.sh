#!/bin/sh
# Puts the registrar's files, and what its sidecar needs for the store, into the instance's
# folder.
set -eu
cp "$VITRINE_SPEC/registrar.cfg" "$VITRINE_SPEC/run.sh" "$VITRINE_DIR"
exec "$VITRINE_SPEC/install-sprout.sh"
