#!/bin/sh
# The least that a load generator can be: whole rates and durations, and every
# call fails, by the cause that the workload's parameter "cause" names. It takes
# its trial from the environment; latency is empty, for no call succeeded.
set -eu
n=$((VITRINE_RATE * VITRINE_DURATION))
zeros=0 rates=$VITRINE_RATE i=1
while [ "$i" -lt "$VITRINE_DURATION" ]; do
	zeros="$zeros,0" rates="$rates,$VITRINE_RATE" i=$((i + 1))
done
echo "refusing $n calls to $VITRINE_TARGETS"
cat <<END
{"duration_s": $VITRINE_DURATION, "scheduled": $n, "offered": $n, "succeeded": 0, "failed": {"$VITRINE_PARAM_CAUSE": $n}, "seconds": {"scheduled": [$rates], "offered": [$rates], "succeeded": [$zeros], "failed": {"$VITRINE_PARAM_CAUSE": [$rates]}}, "latency": ""}
END
