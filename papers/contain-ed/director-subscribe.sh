#!/bin/sh
# Writes the director's configuration: two types, REGISTER and SUBSCRIBE, with one aggregate
# each. ADDRESS: the director's. REGISTER and SUBSCRIBE: address:port of each type's Bono.
set -eu
cat >"$VITRINE_DIR/director.yaml" <<-END
	listen: {sip: ["udp://$ADDRESS:5060"], control: "127.0.0.1:8090"}
	types: [{name: register, protocol: sip}, {name: subscribe, protocol: sip}]
	rules: [{method: REGISTER, type: register}, {method: SUBSCRIBE, type: subscribe}]
	instances:
	  - {name: register-1, type: register, address: "$REGISTER"}
	  - {name: subscribe-1, type: subscribe, address: "$SUBSCRIBE"}
END
