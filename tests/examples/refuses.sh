#!/bin/sh
# A wrong option of an example is named, with its value and what was expected. refuses.sh PROGRAM NAME
set -u
program=$1 name=$2 wrong=0

# refused TEXT ARGUMENTS...: ends with 2 and says TEXT.
refused()
{
    text=$1
    shift
    said=$("$program" "$@" 2>&1)
    status=$?
    case $status:$said in
    "2:$name: $text"*) ;;
    *) echo "$name $*: status $status, expected 2 and '$text'; it said: $said" && wrong=1 ;;
    esac
}

refused '--epochs 5x: expected a number from 1' --epochs 5x
refused '--epochs 0: expected a number from 1' --epochs 0
refused '--epochs : expected a number from 1' --epochs
refused '--data : expected a value' --data
refused '--fast 1: expected --epochs' --fast 1
case $name in
train) refused '--link fast: expected MB per second' --link fast ;;
*) refused '--lose x: expected a step' --lose x ;;
esac
"$program" --help | grep -q "^usage: $name " || { echo "$name --help prints no usage"; wrong=1; }
exit $wrong
