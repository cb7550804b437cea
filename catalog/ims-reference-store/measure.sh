#!/bin/sh
# Measures what the store costs per call, and the capacity against the delay to the store.
# usage: measure.sh FOLDER [FLAG...]    FOLDER gets the runs; flags are those of
#                                       vitrine characterize. VITRINE: the program.
set -eu
out=${1:?usage: measure.sh FOLDER [FLAG...]}
shift
here=$(dirname "$0")
vitrine=${VITRINE:-vitrine}
"$vitrine" characterize "$here/deployment-delay.yaml" "$here/workload-delay.yaml" --out "$out/store" "$@"
"$vitrine" characterize "$here/deployment-replicated.yaml" "$here/workload-delay.yaml" --out "$out/replicated" "$@"
case " $* " in
*" --dry-run "*) ;;
*) "$vitrine" compare "$out/store" "$out/replicated" ;;
esac
