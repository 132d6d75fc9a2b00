# SPDX-License-Identifier: Apache-2.0
"""The command line; `trireme-postproc --help` lists the verbs. A verb imports its modules when it runs, since not all need matplotlib."""

import argparse
import contextlib
import os
import sys

from .requirements import explain

try:
    from .export import FORMATS, export
    from .run_file import ODD_VALUES, RunFile, RunFileError, locate, odd_values
except ImportError as error:
    if explain(error) is None:
        raise
    print(explain(error), file=sys.stderr)
    sys.exit(3)

USER_ERROR = 2
ENVIRONMENT = 3
INTERRUPTED = 130
LONGEST_S = 1e9  # time.sleep() rejects values that are much larger
RUN_HELP = "a run directory, or the run.h5 in it"


def _summary(options):
    from .summary import summary

    sys.stdout.write(summary(RunFile(options.run)))


def _plot(options):
    from .plot import plot

    run = RunFile(options.run)
    output = _picture(options.output or os.path.join(os.path.dirname(run.path), "run.png"), run.path)
    plot(run, output)
    print(f"picture: {output}")


def _export(options):
    if options.follow:
        return _follow(options)
    run = RunFile(options.run)
    directory = os.path.dirname(run.path) or "."
    if options.format == "jsonl":  # the run directory already has a steps.jsonl: the log
        directory = os.path.join(directory, "jsonl")
    for path in export(run, options.format, options.output or directory):
        print(path)


def _follow(options):
    from .follow import FORMATS as LIVE
    from .follow import follow

    if options.format not in LIVE:
        raise RunFileError("--follow writes csv or tensorboard. JSON lines are in RUN_DIR/steps.jsonl without it")
    try:
        follow(options.run, options.format, options.output, options.every, options.timeout)
    except KeyboardInterrupt:
        print()


def _rates(options):
    from .rates import plot_rates, read_rates

    output = _picture(options.output or os.path.splitext(options.file)[0] + ".png", options.file)
    plot_rates(read_rates(options.file), output)
    print(f"picture: {output}")


def _ablation(options):
    from .ablation import Ablation, table
    from .ablation_picture import plot_ablation

    output = _picture(options.output or os.path.splitext(options.file)[0] + ".png", options.file)
    ablation = Ablation(options.file)
    sys.stdout.write(table(ablation))
    plot_ablation(ablation, output)
    print(f"picture: {output}", file=sys.stderr)


def _prediction(options):
    from .prediction import Prediction, table
    from .prediction_picture import plot_prediction

    output = _picture(options.output or os.path.splitext(options.file)[0] + ".png", options.file)
    prediction = Prediction(options.file)
    sys.stdout.write(table(prediction))
    plot_prediction(prediction, output)
    print(f"picture: {output}", file=sys.stderr)


def _timeline(options):
    from . import timeline

    found = timeline.step_timeline(RunFile(options.run), options.step, timeline.parse_ranks(options.ranks))
    sys.stdout.write(timeline.table(found))
    if options.png:
        from .timeline_picture import plot_timeline

        plot_timeline(found, options.png)
        print(f"picture: {options.png}")
    if options.trace:
        timeline.write_trace(found, options.trace)
        print(f"trace: {options.trace} (open it in https://ui.perfetto.dev or chrome://tracing)")


def _watch(options):
    from .watch import watch

    _expect_different(options.runs)
    try:
        watch(options.runs, options.once, options.every, options.timeout)
    except KeyboardInterrupt:
        print()


def _list(options):
    from . import run_list

    rows = run_list.sorted_rows(run_list.rows_below(options.directory), options.sort, options.reverse)
    sys.stdout.write(run_list.csv_text(rows) if options.csv else run_list.table_text(rows))


def _compare(options):
    from .compare import compare

    runs = _several([options.first, *options.others])
    sys.stdout.write(compare(runs))
    if options.png:
        from .compare_picture import plot_compare

        plot_compare(runs, options.png)
        print(f"picture: {options.png}")


def _scaling(options):
    from .scaling import scaling, series

    found = series(_several(options.runs))
    sys.stdout.write(scaling(found))
    if options.png:
        from .scaling_picture import plot_scaling

        plot_scaling(found, options.png)
        print(f"picture: {options.png}")


def _report(options):
    from .report import watch_report, write_report

    runs = _several(options.runs)
    if options.watch:
        try:
            watch_report(options.runs, options.output, options.step, options.every, options.timeout)
        except KeyboardInterrupt:
            write_report(_several(options.runs), options.output, options.step)
    else:
        write_report(runs, options.output, options.step)
    print(f"report: {options.output}")


def _picture(output, data):
    """Returns `output` if it is a different file from `data`; otherwise raises RunFileError."""
    if os.path.realpath(output) == os.path.realpath(data):
        raise RunFileError(f"{output}: the picture would replace its data: name another with -o")
    return output


def _expect_different(paths):
    files = [os.path.realpath(locate(path)) for path in paths]
    for at, path in enumerate(files):
        if path in files[:at]:
            raise RunFileError(f"{paths[at]}: is named twice: name another run")


def _several(paths):
    """Opens the runs. A run that is named twice is an error."""
    runs = [RunFile(path) for path in paths]
    _expect_different(paths)
    return runs


def _add_pace(verb):
    """Options of the verbs that follow a run."""
    verb.add_argument("--every", type=float, default=2.0, metavar="SECONDS", help="interval at which the run is read; default: %(default)s")
    verb.add_argument("--timeout", type=float, default=900.0, metavar="SECONDS",
                      help="a run on another host that writes nothing for this long counts as ended; default: %(default)s")


def _add_verbs_of_one_run(verbs):
    summary = verbs.add_parser("summary", help="print the table of a run")
    summary.add_argument("run", metavar="RUN", help=RUN_HELP)
    summary.set_defaults(call=_summary)
    plot = verbs.add_parser("plot", help="draw a run: loss, learning rate, speed, time of a step, evaluate.sets, noise scale")
    plot.add_argument("run", metavar="RUN", help=RUN_HELP)
    plot.add_argument("-o", "--output", metavar="FILE", help="PNG, PDF or SVG; default: run.png next to run.h5")
    plot.set_defaults(call=_plot)
    rows = verbs.add_parser("export", help="write the rows of a run for other programs: JSON lines, CSV, TensorBoard")
    rows.add_argument("run", metavar="RUN", help=RUN_HELP)
    rows.add_argument("--format", required=True, choices=FORMATS, help="format of the files")
    rows.add_argument("-o", "--output", metavar="DIR", help="directory to write them to; default: that of run.h5, for JSON lines its subdirectory jsonl")
    rows.add_argument("--follow", action="store_true",
                      help="csv and tensorboard: read steps.jsonl of a run in progress and write its rows until it ends")
    _add_pace(rows)
    rows.set_defaults(call=_export)
    rates = verbs.add_parser("rates", help="draw what `trireme find-rate --json FILE` wrote")
    rates.add_argument("file", metavar="FILE", help="the JSON file")
    rates.add_argument("-o", "--output", metavar="FILE", help="PNG, PDF or SVG; default: FILE with the ending .png")
    rates.set_defaults(call=_rates)
    each = verbs.add_parser("ablation", help="compare each optimization with its absence, from the file of dev/experiments/ablation.sh: a Markdown table and a picture")
    each.add_argument("file", metavar="FILE", help="the HDF5 file")
    each.add_argument("-o", "--output", metavar="FILE", help="PNG, PDF or SVG; default: FILE with the ending .png")
    each.set_defaults(call=_ablation)
    predicted = verbs.add_parser("prediction", help="compare predicted with measured steps, from the file of dev/experiments/prediction.sh: a Markdown table and a picture")
    predicted.add_argument("file", metavar="FILE", help="the JSON file")
    predicted.add_argument("-o", "--output", metavar="FILE", help="PNG, PDF or SVG; default: FILE with the ending .png")
    predicted.set_defaults(call=_prediction)
    line = verbs.add_parser("timeline", help="show one step of every rank: compute, each bucket's reduction and gather, exposed waits")
    line.add_argument("run", metavar="RUN", help=RUN_HELP)
    line.add_argument("--step", type=int, required=True, metavar="K", help="number of the step")
    line.add_argument("--ranks", metavar="LIST", help="ranks to show, such as 0,2-5; default: all recorded ranks")
    line.add_argument("--png", metavar="FILE", help="draw it; PNG, PDF or SVG by the ending of the name")
    line.add_argument("--trace", metavar="FILE", help="write it as JSON that Perfetto and chrome://tracing open")
    line.set_defaults(call=_timeline)
    live = verbs.add_parser("watch", help="follow runs in progress: step, loss, speed, remaining time, validation, checkpoint")
    live.add_argument("runs", nargs="+", metavar="RUN", help=RUN_HELP)
    live.add_argument("--once", action="store_true", help="show the state once and end")
    _add_pace(live)
    live.set_defaults(call=_watch)


def _add_verbs_of_several_runs(verbs):
    rows = verbs.add_parser("list", help="list the runs below a directory: state, steps, best validation loss, speed, keys that differ")
    rows.add_argument("directory", metavar="DIR", help="where to look for run directories, at any depth")
    rows.add_argument("--sort", default="run", metavar="COLUMN",
                      help="column to sort by: run, state, steps, validation, speed, or a key of the deck such as optimizer.learning_rate; default: %(default)s")
    rows.add_argument("--reverse", action="store_true", help="sort in the opposite order")
    rows.add_argument("--csv", action="store_true", help="print CSV with plain numbers and all keys that differ")
    rows.set_defaults(call=_list)
    compared = verbs.add_parser("compare", help="compare runs: losses, speed, time of a step, decks, with ratios to the first run")
    compared.add_argument("first", metavar="RUN", help=RUN_HELP + ": the run that the other runs are compared with")
    compared.add_argument("others", nargs="+", metavar="RUN", help="the other runs")
    compared.add_argument("--png", metavar="FILE", help="draw the comparison; PNG, PDF or SVG by the ending of the name")
    compared.set_defaults(call=_compare)
    scale = verbs.add_parser("scaling", help="show weak and strong scaling of runs on different numbers of ranks: tokens/s and efficiency")
    scale.add_argument("runs", nargs="+", metavar="RUN", help=RUN_HELP)
    scale.add_argument("--png", metavar="FILE", help="draw it; PNG, PDF or SVG by the ending of the name")
    scale.set_defaults(call=_scaling)
    report = verbs.add_parser("report", help="write one HTML file that needs no network: findings, curves, time of a step, evaluation, decks")
    report.add_argument("runs", nargs="+", metavar="RUN", help=RUN_HELP)
    report.add_argument("-o", "--output", required=True, metavar="FILE.html", help="file to write")
    report.add_argument("--step", type=int, metavar="K", help="step whose timeline is drawn; default: one that took the median time")
    report.add_argument("--watch", action="store_true", help="write the report again as the runs proceed, until they end; the page reloads itself")
    _add_pace(report)
    report.set_defaults(call=_report)


def _parser():
    parser = argparse.ArgumentParser(
        prog="trireme-postproc", description="Tables and pictures from the run files of trireme."
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    _add_verbs_of_one_run(verbs)
    _add_verbs_of_several_runs(verbs)
    return parser


class _Printable:
    """A stream that writes control characters and lone surrogates as \\xNN. Names and texts from files can then not move the cursor, set
    the title of the terminal or cause encoding errors. `kept`: control characters that are written unchanged."""

    def __init__(self, stream, kept="\n\t"):
        self._stream, self._kept = stream, kept

    def write(self, text):
        shown = "".join(f"\\x{ord(c):02x}" if (ord(c) < 32 and c not in self._kept) or 127 <= ord(c) < 160 else c for c in text)
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        self._stream.write(shown.encode(encoding, "backslashreplace").decode(encoding))
        return len(text)

    def __getattr__(self, name):
        return getattr(self._stream, name)


def main(arguments=None):
    """Returns the exit code: 0 done, 2 a mistake in the input, 3 the environment, 130 interrupted."""
    options = _parser().parse_args(arguments)
    if sys.stdout is None:
        print("error: the standard output is closed. Start the command with an open one", file=sys.stderr)
        return ENVIRONMENT
    out = _Printable(sys.stdout, "\n\t\x1b" if options.verb == "watch" else "\n\t")  # `watch` draws, and replaces such characters
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(_Printable(sys.stderr)):
        return _run(options)


def _run(options):
    try:
        if "every" in options and not (0 < options.every <= LONGEST_S and options.timeout >= 0):
            raise RunFileError("--every and --timeout must be positive numbers of seconds")
        options.call(options)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except RunFileError as error:
        print(f"error: {error}", file=sys.stderr)
        return USER_ERROR
    except BrokenPipeError:  # the reader of the output has ended, as in `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        folder = os.path.dirname(error.filename or "")
        if isinstance(error, FileNotFoundError) and folder and not os.path.isdir(folder):
            print(f"error: {folder}: there is no such directory. Make it, or name another one", file=sys.stderr)
            return USER_ERROR
        print(f"error: {error.filename}: {error.strerror}" if error.filename else f"error: {error}", file=sys.stderr)
        return ENVIRONMENT
    except ImportError as error:  # of a package that only some verbs need
        if explain(error) is None:
            raise
        print(explain(error), file=sys.stderr)
        return ENVIRONMENT
    except ODD_VALUES as error:
        words = vars(options)
        given = ", ".join([*(words[name] for name in ("run", "file", "directory", "first") if name in words), *words.get("others", ()), *words.get("runs", ())])
        print(f"error: {odd_values(given, error)}", file=sys.stderr)
        return USER_ERROR
    return 0


if __name__ == "__main__":
    sys.exit(main())
