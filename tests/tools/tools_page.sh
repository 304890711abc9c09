#!/bin/sh
# The page docs/reference/tools.md, from what the tools print of themselves.
#
#   tools_page.sh BIN > PAGE     writes it; BIN is the folder of the tools
#   tools_page.sh BIN PAGE       the checked-in page is what the tools print
set -u
bin=$1

# help TOOL [ARGUMENT]...: what it prints, as a block of text. comm-perf --fit prints its options as an error.
help()
{
    tool=$1
    shift
    [ $# -gt 0 ] || set -- --help
    echo '```text'
    "$bin/$tool" "$@" 2>&1
    echo '```'
}

page()
{
    cat <<'TEXT'
# Tools

`tests/tools/tools_page.sh build/bin` writes this page from what the tools print with `--help`; a test compares the two.

The tools are installed with the library, and with the Python package. After `./dev build` they are in `build/bin`.

## comm-run

Starts the ranks of a program, on this host or by ssh on others ([mpirun and ssh](../how-to/mpirun-and-ssh.md)). It sets
[the variables that say who a rank is](options.md#variables-that-say-who-a-rank-is). The exit status is 2 if the command
line is wrong, and 127 if the program cannot be run; the text below has the others.

TEXT
    help comm-run
    cat <<'TEXT'

## comm-perf

Times one collective, or messages, over a range of lengths ([figures and methods](../../README.md#performance)). The exit
status is 1 if a call failed or a result was wrong, and 2 if the command line is wrong.

TEXT
    help comm-perf
    cat <<'TEXT'

The parameters of a machine, from which algorithms are then chosen ([predictions](../performance/scale.md)):

TEXT
    help comm-perf --fit
    cat <<'TEXT'

## comm-info

Prints which backends this build has, and why the rest is missing, all options, this world's limits, and which algorithm
a call takes. Under a launcher it opens the launcher's world, and rank 0 prints. The exit status is 1 if it cannot open a
world, and 2 if the command line is wrong.

TEXT
    help comm-info
}

if [ $# -eq 1 ]; then
    page
    exit
fi
if page | diff -u "$2" -; then
    exit 0
fi
echo "the page is not what the tools print: tests/tools/tools_page.sh BIN > docs/reference/tools.md"
exit 1
