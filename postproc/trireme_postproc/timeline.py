# SPDX-License-Identifier: Apache-2.0
"""Shows one step of every rank: what compute did, when each bucket was ready, reduced and gathered, and where compute waited. The output is
a table, or a trace in the JSON trace event format for Perfetto and chrome://tracing."""

import json

import numpy as np

from .output_file import MAKER, ending_of, new_file
from .run_file import RunFileError
from .texts import columns_text, in_small, number
from .timings import ROOT

COMPUTE, OTHER = "compute", "other"
FIRST_BUCKET_TID = 10  # thread ids in the trace: 0 is compute, 1 is what is outside the step, buckets start here


class Interval:
    """One sample of the step. `begin`: seconds since the first rank began the step."""

    def __init__(self, span, sample, begin):
        self.span = span
        self.step, self.micro, self.index = int(sample["step"]), int(sample["micro"]), int(sample["index"])
        self.begin, self.duration = float(begin), float(sample["duration_s"])
        self.end = self.begin + self.duration

    @property
    def lane(self):
        """The row in which it is drawn: COMPUTE, "bucket 3", or OTHER for what is outside the step."""
        if self.span.parent is not None or self.span.name == ROOT:
            return COMPUTE
        return f"{self.span.index_of} {self.index}" if self.span.index_of else OTHER


class RankStep:
    """The intervals of one rank, sorted by their beginning, and sums in seconds."""

    def __init__(self, rank, intervals):
        self.rank = rank
        self.intervals = sorted(intervals, key=lambda i: (i.begin, -i.duration))
        self.whole = next((i for i in self.intervals if i.span.name == ROOT), None)
        self.seconds = self.whole.duration if self.whole else float("nan")
        inside = [(i, self.in_step(i)) for i in self.intervals if i.span.waits]
        self.waits = {}
        for interval, seconds in inside:
            key = (interval.span.name, interval.index)
            self.waits[key] = self.waits.get(key, 0.0) + seconds
        self.exposed = sum(seconds for _, seconds in inside)

    def in_step(self, interval):
        """Returns the seconds of an interval that are inside the step."""
        if self.whole is None:
            return 0.0
        return max(0.0, min(interval.end, self.whole.end) - max(interval.begin, self.whole.begin))


class StepTimeline:
    """`aligned`: whether ranks are aligned by the calendar clocks of their hosts. Otherwise each rank begins at 0."""

    def __init__(self, run, step, ranks, aligned):
        self.run, self.step, self.ranks, self.aligned = run, step, ranks, aligned
        self.buckets = sorted({(i.span.index_of, i.index) for rank in ranks for i in rank.intervals if i.span.index_of})

    def alignment(self):
        return "ranks side by side by the clocks of their hosts" if self.aligned else "every rank from the beginning of its step"

    def parameters(self, bucket):
        """Returns the first and last parameter of a bucket; None if the file does not have them."""
        table = self.run.buckets
        if not all(name in table for name in ("first_step", "bucket", "first_parameter", "last_parameter")):
            return None
        rows = np.flatnonzero((table["bucket"].values == bucket) & (table["first_step"].values <= self.step))
        return tuple(str(table[name].values[rows[-1]]) for name in ("first_parameter", "last_parameter")) if len(rows) else None


def parse_ranks(text):
    """Returns the set of ranks in a text such as "0,2-5"; None (all ranks) for "all", "" or None."""
    if text in (None, "", "all"):
        return None
    ranks = set()
    for part in text.split(","):
        low, _, high = part.partition("-")
        if not low.isdecimal() or (high and not high.isdecimal()) or part.endswith("-") or int(high or low) < int(low):
            raise RunFileError(f"--ranks {text}: expected ranks such as 0,2-5, or all")
        if high and int(high) - int(low) > 1_000_000:
            raise RunFileError(f"--ranks {text}: more than a million ranks")
        ranks.update(range(int(low), int(high or low) + 1))
    return ranks


def ranges(numbers):
    """Formats numbers such as 1, 2, 3, 7 as "1-3, 7". Of more than six ranges, those in the middle are omitted."""
    parts = []
    for value in map(int, numbers):
        if parts and parts[-1][1] == value - 1:
            parts[-1][1] = value
        else:
            parts.append([value, value])
    texts = [str(low) if low == high else f"{low}-{high}" for low, high in parts]
    return ", ".join(texts if len(texts) <= 6 else texts[:5] + ["…", texts[-1]])


def recorded_steps(run):
    """Returns the steps that have a span of the whole step."""
    position = run.position(ROOT)
    return np.unique(run.samples["step"][run.samples["name"] == position]) if position is not None else np.zeros(0, dtype=int)


def step_timeline(run, step, ranks=None):
    """Returns the StepTimeline of a step, of all recorded ranks or of the set `ranks`."""
    there = recorded_steps(run)
    if not len(there):
        raise RunFileError(f"{run.path}: has no spans of steps: run with record.spans: true; during a run spans are recorded later than losses")
    if step not in there:
        raise RunFileError(f"{run.path}: has no spans of step {step}, but of the steps {ranges(there)}: choose one with --step")
    samples = run.samples[(run.samples["step"] == step) & (run.samples["name"] < len(run.spans))]
    known = np.unique(samples["rank"]).tolist()
    missing = sorted((ranks or set()) - set(known))
    if missing:
        raise RunFileError(f"{run.path}: step {step} has no spans of rank {ranges(missing)}, but of the ranks {ranges(known)}: "
                           "choose them with --ranks, or record more with record.span_ranks")
    chosen = [rank for rank in known if ranks is None or rank in ranks]
    root = run.position(ROOT)
    anchors = {rank: _anchor(run, step, rank) for rank in chosen}
    aligned = all(anchor is not None for anchor in anchors.values())
    begins = {}
    for rank in chosen:
        of_rank = samples[samples["rank"] == rank]
        whole = of_rank["begin_s"][of_rank["name"] == root]
        begins[rank] = float(whole[0] if len(whole) else of_rank["begin_s"].min())
    # Subtract calendar times first: a sum with seconds since 1970 would lose the digits of microseconds.
    base = anchors[chosen[0]] if aligned else 0.0
    shift = {rank: anchors[rank] - base if aligned else -begins[rank] for rank in chosen}
    origin = min(begins[rank] + shift[rank] for rank in chosen)
    return StepTimeline(run, step, [
        RankStep(rank, [Interval(run.spans[row["name"]], row, row["begin_s"] + shift[rank] - origin) for row in samples[samples["rank"] == rank]])
        for rank in chosen
    ], aligned)


def _anchor(run, step, rank):
    """Returns the calendar time at which a rank's clock was 0 in the session of a step; None if the file does not have it."""
    table = run.anchors
    if not all(name in table for name in ("first_step", "rank", "calendar_s")):
        return None
    rows = np.flatnonzero((table["rank"].values == rank) & (table["first_step"].values <= step))
    return float(table["calendar_s"].values[rows[-1]]) if len(rows) else None


def table(timeline):
    """Returns the whole text: sums for each rank, and the buckets of each rank."""
    run = timeline.run
    unit = run.sample_units.get("duration_s", "")
    factor, small = in_small(unit)
    lines = [f"step {timeline.step} of {run.name} ({run.path}); {timeline.alignment()}"]
    rows = [("rank", f"begin [{small}]", f"step [{small}]", f"compute [{small}]", f"exposed [{small}]", "share of step")]
    for rank in timeline.ranks:
        if rank.whole is not None:
            share = f"{100 * rank.exposed / rank.seconds:.1f} %" if rank.seconds > 0 else ""
            values = (rank.whole.begin, rank.seconds, rank.seconds - rank.exposed, rank.exposed)
            rows.append((str(rank.rank), *(number(value * factor) for value in values), share))
    lines += columns_text(rows, "  ")
    for rank in timeline.ranks:
        lines += ["", f"rank {rank.rank}: begin +duration [{small}], begins since rank {rank.rank} began the step"]
        lines += columns_text(_bucket_rows(timeline, rank, factor), "  ")
    return "\n".join(lines) + "\n"


def _bucket_rows(timeline, rank, factor):
    names = [span.name for span in timeline.run.spans if span.index_of and any(i.span is span for r in timeline.ranks for i in r.intervals)]
    zero = rank.whole.begin if rank.whole else 0.0
    rows = [("bucket", *names)]
    for index_of, index in timeline.buckets:
        cells = []
        for name in names:
            found = [i for i in rank.intervals if i.span.name == name and i.index == index]
            cells.append(", ".join(f"{(i.begin - zero) * factor:.3f} +{i.duration * factor:.3f}" for i in found))
        rows.append((f"{index_of} {index}", *cells))
    return rows if len(rows) > 1 else [("no buckets were recorded",)]


def trace(timeline):
    """Returns the trace as a dictionary. Ranks are processes, compute and each bucket are threads. Times are in microseconds since the
    first event, not since the step began, because gathers can begin before the step and Perfetto omits events with negative times."""
    first = min(interval.begin for rank in timeline.ranks for interval in rank.intervals)
    events = []
    for rank in timeline.ranks:
        lanes = {COMPUTE: 0, OTHER: 1}
        for position, (index_of, index) in enumerate(timeline.buckets):
            lanes[f"{index_of} {index}"] = FIRST_BUCKET_TID + position
        used = {interval.lane for interval in rank.intervals}
        events.append(_metadata("process_name", rank.rank, 0, f"rank {rank.rank}"))
        events.append({"name": "process_sort_index", "ph": "M", "pid": rank.rank, "tid": 0, "args": {"sort_index": rank.rank}})
        events += [_metadata("thread_name", rank.rank, lanes[lane], lane) for lane in lanes if lane in used]
        for interval in rank.intervals:
            arguments = {"step": interval.step, "micro_step": interval.micro}
            if interval.span.index_of:
                arguments[interval.span.index_of] = interval.index
                parameters = timeline.parameters(interval.index)
                if parameters:
                    arguments["parameters"] = " … ".join(parameters)
            events.append({
                "name": interval.span.name, "cat": "wait" if interval.span.waits else interval.lane.split(" ")[0], "ph": "X",
                "ts": round((interval.begin - first) * 1e6, 3), "dur": round(interval.duration * 1e6, 3), "pid": rank.rank, "tid": lanes[interval.lane],
                "args": arguments,
            })
    run = timeline.run
    facts = {"made_by": MAKER, "run": run.name, "step": str(timeline.step), "alignment": timeline.alignment(),
             "step_begins_us": str(round(-first * 1e6, 3))}
    facts.update({name: str(run.attributes[name]) for name in ("software", "software_version", "git_sha1", "machine") if name in run.attributes})
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": facts}


def _metadata(name, pid, tid, text):
    return {"name": name, "ph": "M", "pid": pid, "tid": tid, "args": {"name": text}}


def write_trace(timeline, path):
    if ending_of(path) != ".json":
        raise RunFileError(f"{path}: a trace's name must end in .json")
    with new_file(path) as file:
        file.write(json.dumps(trace(timeline), separators=(",", ":")).encode() + b"\n")
