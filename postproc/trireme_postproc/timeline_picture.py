# SPDX-License-Identifier: Apache-2.0
"""The picture of one step: a row for each rank's compute and for each of its buckets."""

from matplotlib.patches import Patch

from .span_looks import legend_text, look_of
from .style import INK, STYLE, expect_picture, label, plain, plt, save
from .texts import in_small
from .timeline import COMPUTE, OTHER
from .timings import ROOT

MOST_ROWS = 90  # with more rows, all buckets of a rank share one row
ROW, MARGIN, LEGEND_ROW = 0.27, 1.5, 0.2  # inches
LEGEND_COLUMNS = 7


def rows_of(timeline):
    """Returns a dict lane → row per rank (compute, then buckets), the number of rows, and whether the buckets share one row."""
    together = len(timeline.ranks) * (2 + len(timeline.buckets)) > MOST_ROWS
    rows, top = [], 0
    for rank in timeline.ranks:
        used = {interval.lane for interval in rank.intervals if interval.lane != OTHER}
        lanes = {COMPUTE: top}
        for index_of, index in timeline.buckets:
            lane = f"{index_of} {index}"
            if lane in used:
                lanes[lane] = top + 1 if together else top + len(lanes)
        top = max(lanes.values()) + 2  # one empty row between ranks
        rows.append(lanes)
    return rows, top - 1, together


def _draw_rank(axes, rank, lanes, factor, positions, width):
    """`width`: of the picture, in seconds. Bars that are too narrow to be seen get an edge in their own colour."""
    for interval in rank.intervals:
        if interval.span.name == ROOT or interval.lane not in lanes:
            continue
        is_wait, is_narrow = interval.span.waits, interval.duration < 0.006 * width
        if is_wait and interval.duration < 1e-4 * width:  # nothing waited
            continue
        colour, hatch = look_of(interval.span, positions[interval.span.name])
        axes.barh(
            lanes[interval.lane], interval.duration * factor, left=interval.begin * factor,
            height=0.86 if interval.lane == COMPUTE and not is_wait else 0.6 if is_wait else 0.7,
            color=colour, edgecolor=colour if is_narrow else "white", linewidth=0.7 if is_narrow else 0.3, hatch=hatch or None,
            zorder=3 if is_wait else 2,
        )
    if rank.whole is not None:
        for at in (rank.whole.begin, rank.whole.end):
            rows = [min(lanes.values()) - 0.5, max(lanes.values()) + 0.5]
            axes.plot([at * factor] * 2, rows, color=INK, linewidth=0.9, linestyle=(0, (3, 2)), zorder=4)


def _labels(axes, timeline, rows, together):
    ticks, texts = [], []
    for rank, lanes in zip(timeline.ranks, rows):
        for row in sorted(set(lanes.values())):
            at = [lane for lane, of in lanes.items() if of == row]
            ticks.append(row)
            share = f" ({100 * rank.exposed / rank.seconds:.1f} % exposed)" if rank.seconds > 0 else ""
            texts.append(f"rank {rank.rank}{share}" if COMPUTE in at else "buckets" if together else at[0])
    axes.set_yticks(ticks)
    axes.set_yticklabels(texts)
    for text, name in zip(axes.get_yticklabels(), texts):
        if name.startswith("rank"):
            text.set_fontweight("bold")


def _legend(axes, timeline, positions):
    """Draws the legend above the rows. Returns the number of rows in the legend."""
    drawn = {i.span.name for rank in timeline.ranks for i in rank.intervals if i.lane != OTHER and i.span.name != ROOT}
    spans = sorted((span for span in timeline.run.spans if span.name in drawn), key=lambda span: span.waits)
    handles = []
    for span in spans:
        colour, hatch = look_of(span, positions[span.name])
        handles.append(Patch(facecolor=colour, edgecolor="white", linewidth=0, hatch=2 * hatch or None, label=legend_text(span)))
    rows = max(1, -(-len(handles) // LEGEND_COLUMNS))
    axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(0, 1.0), ncol=-(-len(handles) // rows) or 1, borderaxespad=0.2,
                handlelength=1.4, handletextpad=0.5, columnspacing=1.0, labelspacing=0.3, fontsize=8.5)
    return rows


def window(timeline):
    """Returns the limits of the time axis: everything that is drawn, with a small margin."""
    drawn = [i for rank in timeline.ranks for i in rank.intervals if i.lane != OTHER]
    # Limit the range: a gather may have begun long before the step, if there was an evaluation or a checkpoint in between.
    steps = [rank.whole for rank in timeline.ranks if rank.whole is not None]
    if steps:
        first, last = min(step.begin for step in steps), max(step.end for step in steps)
        room = 0.25 * (last - first)
        drawn = [i for i in drawn if i.end > first - room and i.begin < last + room]
        begin = max(first - room, min(i.begin for i in drawn))
        end = min(last + room, max(i.end for i in drawn))
    else:
        begin, end = min(i.begin for i in drawn), max(i.end for i in drawn)
    return begin - 0.01 * (end - begin), end + 0.01 * (end - begin)


def plot_timeline(timeline, output):
    """Writes the picture. The extension of `output` selects the format."""
    expect_picture(output)
    unit = timeline.run.sample_units.get("duration_s", "")
    factor, small = in_small(unit)
    rows, height, together = rows_of(timeline)
    positions = {span.name: at for at, span in enumerate(timeline.run.spans)}
    begin, end = window(timeline)
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(dpi=130)
        for rank, lanes in zip(timeline.ranks, rows):
            _draw_rank(axes, rank, lanes, factor, positions, end - begin)
        _labels(axes, timeline, rows, together)
        axes.grid(False, axis="y")
        axes.set_ylim(height - 0.4, -0.6)
        axes.set_xlim(begin * factor, end * factor)
        axes.set_xlabel(label("time since the first rank began the step", small))
        above = LEGEND_ROW * (_legend(axes, timeline, positions) - 1)
        axes.set_title(f"Step {timeline.step} of {plain(timeline.run.name)}", pad=26 + 72 * above)
        inches = MARGIN + above + ROW * max(height, 4)
        figure.set_size_inches(12, inches)
        figure.text(0.99, 0.01, timeline.alignment() + "; dashed: begin and end of a step", ha="right", fontsize=8, color="#6A707A")
        figure.subplots_adjust(left=0.165, right=0.985, top=1 - (0.62 + above) / inches, bottom=0.62 / inches)
        save(figure, output)
