#!/bin/sh
# Makes what the store needs to listen beyond loopback: a certificate of its
# address, for two days, and the file of tokens. STORE_TOKEN: the token.
set -eu
umask 077
cd "$VITRINE_DIR"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 \
	-subj /CN=store -addext "subjectAltName=IP:$ADDRESS" -keyout key.pem -out cert.pem
echo "$STORE_TOKEN" >token
