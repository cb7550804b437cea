#!/bin/sh
# Puts the store's certificate and the token into the instance's folder. It trusts
# the certificate that the store shows, because the network is the run's own.
# STORE: address:port. STORE_TOKEN: the token.
set -eu
umask 077
cd "$VITRINE_DIR"
openssl s_client -connect "$STORE" </dev/null | openssl x509 -out store.pem
echo "$STORE_TOKEN" >token
