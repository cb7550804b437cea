#!/bin/sh
# Runs Contain-ed for the reference EPC, and a mix of all procedures of UEs at two eNodeBs.
# The warm-up attaches UEs. MIX: another mix. See ../contain-ed.sh.
mix=attach=2,detach=2,service-request=6,tracking-area-update=1,x2-handover=1,s1-handover=1,dedicated-bearer=3
here=$(dirname "$0")
exec sh "$here/../contain-ed.sh" "$here" 3 s1ap 127.0.0.1:36412 --warmup 3 \
	--param scenario=mix --param mix="${MIX:-$mix}" --param enodebs=2 --param arrivals=poisson --param timeout=30s
