"""Runs MLRsearch on functions that live in another process.

A line of JSON on standard input begins a search:
    {"min": 100, "max": 11500, "loss": 0.1, "width": 0.05, "shortest": 1, "longest": 10}
or, with the package's own defaults for the rest:
    {"min": 100, "max": 11500, "loss": 0.1}
The answer is lines that ask for trials. Each wants one line back:
    {"load": 880.3, "duration": 1.0}    ->    {"offered": 880, "lost": 12}
and at last the relevant bounds, null for a bound that does not exist:
    {"done": true, "low": 861.0, "high": 903.1}
"""

import json
import sys

from MLRsearch import AbstractMeasurer, Config, MeasurementResult, MultipleLossRatioSearch, SearchGoal


def say(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


class Remote(AbstractMeasurer):
    """Measures by asking for the trial."""

    def measure(self, intended_duration, intended_load):
        say({"load": intended_load, "duration": intended_duration})
        got = json.loads(sys.stdin.readline())
        return MeasurementResult(
            intended_duration=intended_duration,
            intended_load=intended_load,
            offered_count=got["offered"],
            loss_count=got["lost"],
        )


def goal_of(asked):
    if "width" not in asked:
        return SearchGoal(loss_ratio=asked["loss"])
    # One trial of the longest duration decides on a load: the quickest setting.
    return SearchGoal(
        loss_ratio=asked["loss"],
        exceed_ratio=0.5,
        relative_width=asked["width"],
        initial_trial_duration=asked["shortest"],
        final_trial_duration=asked["longest"],
        duration_sum=asked["longest"],
        preceding_targets=2,
        expansion_coefficient=2,
        fail_fast=False,
    )


def search(asked):
    goal = goal_of(asked)
    config = Config()
    config.goals = [goal]
    config.min_load, config.max_load = asked["min"], asked["max"]
    config.warmup_duration = None
    found = MultipleLossRatioSearch(config).search(Remote(), debug=lambda text: None)[goal]
    low, high = found.relevant_lower_bound, found.relevant_upper_bound
    return {
        "done": True,
        "low": None if low is None else float(low),
        "high": None if high is None else float(high),
    }


for line in sys.stdin:
    say(search(json.loads(line)))
