#!/bin/sh
# Puts the files of one function into the instance's folder: its configuration and
# run.sh, and shim.so, which it compiles. NAME: the function. ADDRESS: the instance's
# own address. Peers are address:port.
set -eu
files=$VITRINE_SPEC
cp "$files/run.sh" "$VITRINE_DIR"
cc -std=c11 -O2 -Wall -Wextra -fPIC -shared -o "$VITRINE_DIR/shim.so" "$files"/shim/*.c

script="s|@DIR@|$VITRINE_DIR|; s|@ADDRESS@|$ADDRESS|; s|@SUBSCRIBERS@|${SUBSCRIBERS:-}|"
for peer in HSS SGW PGW PCRF; do
	eval "address=\${$peer:-} identity=\${${peer}_IDENTITY:-}"
	script="$script; s|@$peer@|${address%:*}|; s|@${peer}_IDENTITY@|$identity|"
done
sed "$script" "$files/$NAME.conf" >"$VITRINE_DIR/$NAME.conf"
