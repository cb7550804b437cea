#!/bin/sh
# Makes the store's certificate and its file of tokens.
exec "$VITRINE_SPEC/../ims-reference-store/install-store.sh"
