#!/usr/bin/env bash
# Checks the models of the signalling protocol with SPIN, for 2 and 3 ranks; then that SPIN finds the
# fault in each weakened protocol. Needs spin and a C compiler; takes half a minute.
set -euo pipefail
cd "$(dirname "$0")"
command -v spin >/dev/null || { echo "check.sh needs spin (Debian and Ubuntu: apt-get install spin)" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Prints SPIN's result for a model with these macros: "ok", or what it found.
run() {
  local model=$PWD/$1.pml folder
  shift
  folder=$(mktemp -d "$work/XXXXXX")
  (
    cd "$folder"
    spin -a "$@" "$model" >spin.log 2>&1 || { cat spin.log; exit 1; }
    cc -O1 -DSAFETY -DCOLLAPSE -DVECTORSZ=2048 -o pan pan.c
    ./pan -m2000000 >pan.log 2>&1 || true
    if grep -q 'search depth too small\|out of memory\|Search not completed' pan.log &&
      ! grep -q '^pan:1:' pan.log; then
      echo "the search was not completed"
    elif grep -q 'errors: 0' pan.log; then
      echo "ok"
    else
      grep -m1 '^pan:1:' pan.log | sed 's/^pan:1: //'
    fi
  )
}

# Two at a time. What is expected: ok, or a part of what SPIN must find.
checks=()
expect() { # result, model, macros...
  checks+=("$*")
}
check() {
  local expected=$1 result
  shift
  result=$(run "$@")
  printf '%-12s %-36s %s\n' "$1" "${*:2}" "$result"
  [[ "$result" == "$expected"* ]] || { echo "  but it must be: $expected"; return 1; }
}
export -f run check
export work

# Faults multiply the states, so with three ranks there is one call less. Halves and call lines are
# used again from the third call on.
expect ok collectives -DN=2 -DCALLS=3
expect ok collectives -DN=2 -DCALLS=4 -DNO_FAULTS
expect ok collectives -DN=3 -DCALLS=2 -DKINDS=3
expect ok collectives -DN=3 -DCALLS=3 -DKINDS=3 -DNO_FAULTS
expect ok doorbell -DN=2
expect ok doorbell -DN=3
expect ok stages -DN=2 -DSTAGES=3
expect ok stages -DN=3

expect assertion collectives -DNO_ARRIVAL
expect assertion collectives -DNO_STEP
expect assertion collectives -DONE_HALF
expect invalid collectives -DONE_CALL_LINE
expect invalid collectives -DEQUAL_EPOCH
expect invalid collectives -DNO_ABORT_LOOK
expect invalid collectives -DNO_DEATH_LOOK
expect invalid doorbell -DNO_RECHECK
expect invalid doorbell -DLATE_DOORBELL
expect assertion stages -DNO_SECOND_LOOK
expect assertion stages -DLATE_ATTACH
expect assertion stages -DHELD_ALONE
expect assertion stages -DONE_ANNOUNCEMENT
expect assertion stages -DNO_STEP

printf '%s\n' "${checks[@]}" | xargs -P 2 -I{} bash -c 'set -o pipefail; check {}'
