#!/bin/sh
# Puts the registrar's files into the instance's folder.
set -eu
cp "$VITRINE_SPEC/registrar.cfg" "$VITRINE_SPEC/run.sh" "$VITRINE_DIR"
