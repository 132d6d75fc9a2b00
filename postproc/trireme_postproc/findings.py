# SPDX-License-Identifier: Apache-2.0
"""Describes in sentences what is remarkable about a run: where it loses time, and what went wrong. The only input is the record."""

import numpy as np

from . import timings
from .measures import Spread, exposed_share, per_step, share_of_ceiling, steps_of_rows
from .texts import number, with_unit

# Thresholds in percent, from which a sentence is printed.
EXPOSED, DATA, CEILING, UNEQUAL, VARYING, CHECKPOINTS, RISEN = 5, 5, 25, 10, 20, 2, 1
TRAIN, DATA_NEXT, READY, REDUCE = "model.train", "data.next", "reduce.ready", "reduce.bucket"


def _seconds(run, name):
    """Returns the samples of the span `name` that belong to a step (not to step 0); none if the file has no such span."""
    position = run.position(name)
    chosen = run.samples["name"] == (position if position is not None else len(run.spans))
    return run.samples[chosen & (run.samples["step"] > 0)]


def _keys(rows):
    """Returns for each row a number that identifies its step and rank."""
    return rows["step"].astype(np.int64) << 32 | rows["rank"]


def waits(run):
    """Returns (name of the span, index) → seconds that compute waited inside steps, summed over all recorded ranks and steps."""
    total = {}
    whole = _seconds(run, timings.ROOT)
    keys, first = np.unique(_keys(whole), return_index=True)
    whole = whole[first]
    for span in run.spans:
        rows = _seconds(run, span.name) if span.waits else whole[:0]
        rows = rows[np.isin(_keys(rows), keys)]
        step = whole[np.searchsorted(keys, _keys(rows))]
        begin = np.maximum(rows["begin_s"], step["begin_s"])
        end = np.minimum(rows["begin_s"] + rows["duration_s"], step["begin_s"] + step["duration_s"])
        indices, group = np.unique(rows["index"], return_inverse=True)
        for index, seconds in zip(indices, np.bincount(group, weights=np.maximum(end - begin, 0.0), minlength=len(indices))):
            total[span.name, int(index)] = float(seconds)
    return total


def exposed_percent(run):
    """Returns the exposed percentage of the steps of all recorded ranks, or of rank 0 if there are no spans. NaN: not known."""
    steps = float(_seconds(run, timings.ROOT)["duration_s"].sum())
    if steps > 0 and any(span.waits for span in run.spans):
        return 100 * sum(waits(run).values()) / steps
    exposed, seconds = per_step(run, "exposed_s"), per_step(run, "seconds")
    if exposed_share(run) is None or not seconds.values.sum() > 0:
        return float("nan")
    return 100 * float(exposed.values.sum() / seconds.values.sum())


def _late_rank(reductions):
    """Returns the share of the time of a bucket's reductions that ranks spent waiting for other ranks, and a sentence about which rank came
    last. All ranks end a reduction together, so the rank that came last has the shortest span."""
    rows = np.sort(reductions, order=["step", "micro", "duration_s"])
    begins = np.flatnonzero(np.diff(rows["step"].astype(np.int64), prepend=-1) | np.diff(rows["micro"].astype(np.int64), prepend=-1))
    ends = np.append(begins[1:], len(rows))[: len(begins)]
    several = ends - begins > 1
    if not several.any():
        return 0.0, ""
    shortest, longest = rows[begins[several]], rows[ends[several] - 1]
    ranks, counts = np.unique(shortest["rank"], return_counts=True)
    often = counts.max() / several.sum()
    late = 1 - float(shortest["duration_s"].sum()) / max(float(longest["duration_s"].sum()), 1e-300)
    if often < 1.5 / len(np.unique(rows["rank"])):
        return late, "different ranks come last in different steps"
    return late, f"rank {int(ranks[np.argmax(counts)])} comes last in {100 * often:.0f} % of its recorded reductions"


def _reason(run):
    """Says which wait is the longest and, if the spans show it, why."""
    total = waits(run)
    if not total or not sum(total.values()) > 0:
        return ""
    (name, index), most = max(total.items(), key=lambda item: item[1])
    of_span = next(span for span in run.spans if span.name == name)
    share = 100 * most / sum(total.values())
    if not of_span.index_of:
        return f"{share:.0f} % of it in {name}, where the ranks that are early wait for the last"
    bucket = f"{of_span.index_of} {index}"
    reductions, ready = _seconds(run, REDUCE), _seconds(run, READY)
    late, who = _late_rank(reductions[reductions["index"] == (reductions["index"].min() if len(reductions) else 0)])
    if name.startswith("reduce") and late > 0.5:
        return f"the largest part ({share:.0f} %) for {bucket}, because ranks are not equally fast: {who}"
    ready, reductions = ready[ready["index"] == index], reductions[reductions["index"] == index]
    if not name.startswith("reduce") or not len(ready) or not len(reductions):
        return f"the largest part ({share:.0f} %) in {name} of {bucket}"
    queue, length = float(np.median(ready["duration_s"])), float(np.median(reductions["duration_s"]))
    if queue > length:
        return f"{bucket} ({share:.0f} % of it) waits for the buckets before it: the network is the limit"
    left = _compute_left(run, ready)
    unit = run.sample_units.get("duration_s", "")
    if left < 0.5 * length:
        return (f"{bucket} ({share:.0f} % of it) is ready too late: {with_unit(max(left, 0.0), unit)} before compute ends, and its reduction takes "
                f"{with_unit(length, unit)}")
    return f"the reduction of {bucket} ({share:.0f} % of it) takes {with_unit(length, unit)}, longer than the compute that it could overlap with"


def _compute_left(run, ready):
    """Returns the median seconds from a bucket being ready to the end of the last forward and backward pass of its step."""
    train = _seconds(run, TRAIN)
    keys, group = np.unique(_keys(train), return_inverse=True)
    ends = np.full(len(keys), -np.inf)
    np.maximum.at(ends, group, train["begin_s"] + train["duration_s"])
    ready = ready[np.isin(_keys(ready), keys)]
    return float(np.median(ends[np.searchsorted(keys, _keys(ready))] - ready["begin_s"])) if len(ready) else 0.0


def _time(run):
    exposed = exposed_percent(run)
    if exposed >= EXPOSED:
        reason = _reason(run)
        yield f"communication is exposed for {exposed:.0f} % of the step" + (f": {reason}" if reason else "")
    steps = float(_seconds(run, timings.ROOT)["duration_s"].sum())
    data = 100 * float(_seconds(run, DATA_NEXT)["duration_s"].sum()) / steps if steps > 0 else 0.0
    if data >= DATA:
        yield f"fetching data takes {data:.0f} % of the step ({DATA_NEXT})"
    ceiling = share_of_ceiling(run)
    if ceiling is not None and Spread(ceiling.values).median < CEILING:
        yield f"the median step reaches {Spread(ceiling.values).median:.0f} % of the arithmetic that matrix products reach alone"
    seconds = per_step(run, "seconds")
    if seconds is not None and len(seconds) >= 8:
        spread = Spread(seconds.values, seconds.unit)
        if 100 * (spread.high - spread.low) > VARYING * spread.median:
            yield (f"the time of a step varies: a quarter of the steps take less than {with_unit(spread.low, spread.unit)}, a quarter more than "
                   f"{with_unit(spread.high, spread.unit)}")
    stalls = run.checkpoints.get("stall_s")
    if stalls is not None and len(stalls) and seconds is not None and stalls.unit == seconds.unit:
        share = 100 * stalls.values.sum() / (stalls.values.sum() + (seconds.values * steps_of_rows(run)).sum())
        if share >= CHECKPOINTS:
            yield f"the run waited for checkpoints during {share:.0f} % of the time"


def _ranks(run):
    """Uses the statistics over all ranks, not only over the ranks whose spans are recorded."""
    table = run.rank_spans
    position = run.position(TRAIN)
    if position is None or not all(name in table for name in ("name", "median_s", "max_s", "max_rank")):
        return
    rows = table["name"].values == position
    median, longest = (float(table[name].values[rows].sum()) for name in ("median_s", "max_s"))
    if median > 0 and 100 * (longest / median - 1) >= UNEQUAL:
        ranks, counts = np.unique(table["max_rank"].values[rows], return_counts=True)
        yield (f"ranks differ in speed: the slowest spends {100 * (longest / median - 1):.0f} % more time in {TRAIN} than the median rank; "
               f"most often it is rank {int(ranks[np.argmax(counts)])}")


def _course(run):
    steps = run.steps.get("step")
    if run.finished() is False:
        done = int(steps.values[-1]) if steps is not None and len(steps) else 0
        yield f"the run has not finished: {done} of {run.deck['run.steps']} steps are recorded"
    skipped = run.skipped.get("step")
    if skipped is not None and len(skipped):
        yield f"{len(skipped)} steps were skipped because their gradient was not finite, the first of them step {int(skipped.values[0])}"
    loss = per_step(run, "loss")
    if loss is not None and not np.all(np.isfinite(loss.values)):
        yield f"the loss is not finite at step {int(steps.values[np.argmin(np.isfinite(loss.values))])}"
    checked = run.validation.get("loss")
    if checked is not None and np.isfinite(checked.values).sum() > 1:
        best = int(np.nanargmin(checked.values))
        if checked.values[-1] > checked.values[best] * (1 + RISEN / 100):
            yield (f"the validation loss has risen: its last value is {number(checked.values[-1])}, its best {number(checked.values[best])} at step "
                   f"{int(run.validation['step'].values[best])}")
    allocations = per_step(run, "allocations")
    if allocations is not None and allocations.values[len(allocations) // 2:].sum() > 0 and len(allocations) > 1:
        yield "memory was still allocated in the second half of the run, which costs time (column allocations of /steps)"
    if run.fact("dropped") > 0:
        yield f"{number(int(run.fact('dropped')))} spans were dropped, so that sums over spans are too small"


def findings(run):
    """Returns the sentences; an empty list if nothing is remarkable."""
    return [*_course(run), *_time(run), *_ranks(run)]
