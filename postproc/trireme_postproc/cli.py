# SPDX-License-Identifier: Apache-2.0
"""The command line: trireme-postproc summary RUN, trireme-postproc plot RUN [-o FILE]."""

import argparse
import os
import sys

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
    plot = verbs.add_parser("plot", help="draw a run: loss, learning rate, speed, time of a step")
    plot.add_argument("run", metavar="RUN", help=run_help)
    plot.add_argument(
        "-o", "--output", metavar="FILE", help="PNG, PDF or SVG; default: run.png beside run.h5"
    )
    return parser


def main(arguments=None):
    """Returns the exit code: 0 done, 2 a mistake in the input, 3 the environment."""
    options = _parser().parse_args(arguments)
    try:
        run = RunFile(options.run)
        if options.verb == "summary":
            from .summary import summary

            sys.stdout.write(summary(run))
            sys.stdout.flush()
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
