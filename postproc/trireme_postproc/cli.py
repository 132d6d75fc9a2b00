# SPDX-License-Identifier: Apache-2.0
"""The command line: trireme-postproc summary RUN, plot RUN [-o FILE], export RUN --format FORMAT [-o DIR], rates FILE [-o FILE]."""

import argparse
import os
import sys

from .export import FORMATS, export
from .run_file import RunFile, RunFileError

USER_ERROR = 2
ENVIRONMENT = 3


def _parser():
    parser = argparse.ArgumentParser(
        prog="trireme-postproc", description="Tables and pictures from the run files of trireme."
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    run_help = "a run directory, or the run.h5 in it"
    summary = verbs.add_parser("summary", help="print the table of a run")
    summary.add_argument("run", metavar="RUN", help=run_help)
    plot = verbs.add_parser(
        "plot", help="draw a run: loss, learning rate, speed, time of a step, evaluate.sets, noise scale"
    )
    plot.add_argument("run", metavar="RUN", help=run_help)
    plot.add_argument(
        "-o", "--output", metavar="FILE", help="PNG, PDF or SVG; default: run.png beside run.h5"
    )
    rows = verbs.add_parser("export", help="the rows of a run for other programs, as record.also writes them")
    rows.add_argument("run", metavar="RUN", help=run_help)
    rows.add_argument("--format", required=True, choices=FORMATS, help="of the files")
    rows.add_argument("-o", "--output", metavar="DIR", help="where they go; default: beside run.h5")
    rates = verbs.add_parser("rates", help="draw what `trireme find-rate --json FILE` wrote")
    rates.add_argument("file", metavar="FILE", help="the JSON file")
    rates.add_argument(
        "-o", "--output", metavar="FILE", help="PNG, PDF or SVG; default: FILE with .png at its end"
    )
    return parser


def main(arguments=None):
    """Returns the exit code: 0 done, 2 a mistake in the input, 3 the environment."""
    options = _parser().parse_args(arguments)
    try:
        if options.verb == "rates":
            from .rates import plot_rates, read_rates

            output = options.output or os.path.splitext(options.file)[0] + ".png"
            if os.path.abspath(output) == os.path.abspath(options.file):
                raise RunFileError(f"{output}: the picture would replace its data: name another with -o")
            plot_rates(read_rates(options.file), output)
            print(f"picture: {output}")
            return 0
        run = RunFile(options.run)
        if options.verb == "summary":
            from .summary import summary

            sys.stdout.write(summary(run))
            sys.stdout.flush()
        elif options.verb == "export":
            for path in export(run, options.format, options.output or os.path.dirname(run.path) or "."):
                print(path)
        else:
            from .plot import plot

            output = options.output or os.path.join(os.path.dirname(run.path), "run.png")
            plot(run, output)
            print(f"picture: {output}")
    except RunFileError as error:
        print(f"error: {error}", file=sys.stderr)
        return USER_ERROR
    except BrokenPipeError:  # the reader of our output has left, as in `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return ENVIRONMENT
    return 0


if __name__ == "__main__":
    sys.exit(main())
