# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Lets MLRsearch 1.2 (PyPI: MLRsearch) search a device that is at the other end of the pipe.

Reads a line `LOSS EXCEED WIDTH TRIAL SUM MIN MAX` for each search, and asks for its trials by
`measure SECONDS PACKETS_PER_S`; the answer is `OFFERED FORWARDED`. Says `found PACKETS_PER_S` at
the end of a search: the relevant lower bound, 0 without one.
"""

import sys

from MLRsearch import (
    AbstractMeasurer,
    Config,
    MeasurementResult,
    MultipleLossRatioSearch,
    SearchGoal,
)


class Pipe(AbstractMeasurer):
    """Asks the other end."""

    def measure(self, intended_duration, intended_load):
        print(f"measure {intended_duration!r} {intended_load!r}", flush=True)
        offered, forwarded = map(int, sys.stdin.readline().split())
        return MeasurementResult(
            intended_duration=intended_duration,
            intended_load=intended_load,
            offered_count=offered,
            forwarding_count=forwarded,
        )


def search(words):
    """One search."""
    loss, exceed, width, trial, total, least, most = map(float, words)
    goal = SearchGoal(
        loss_ratio=loss,
        exceed_ratio=exceed,
        relative_width=width,
        initial_trial_duration=trial,
        final_trial_duration=trial,
        duration_sum=total,
        fail_fast=False,
    )
    config = Config()
    config.goals = (goal,)
    config.max_load = most
    config.min_load = least
    # No warm-up trial: the device needs none.
    config.warmup_duration = 0
    result = MultipleLossRatioSearch(config=config).search(Pipe(), debug=lambda text: None)
    lower = result[goal].relevant_lower_bound
    print(f"found {float(lower) if lower else 0.0!r}", flush=True)


print("ready", flush=True)
for line in iter(sys.stdin.readline, ""):
    search(line.split())
