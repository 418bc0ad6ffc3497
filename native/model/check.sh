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

failed=0
holds() { # model macros...
  local result
  result=$(run "$@")
  printf '%-12s %-34s %s\n' "$1" "${*:2}" "$result"
  [ "$result" = ok ] || failed=1
}
breaks() { # what SPIN must find, model, macros...
  local result
  result=$(run "${@:2}")
  printf '%-12s %-34s %s\n' "$2" "${*:3}" "$result"
  [[ "$result" == *$1* ]] || { echo "  expected: $1" >&2; failed=1; }
}

# Faults multiply the states, so with three ranks there is one call less. Halves and call lines are
# used again from the third call on.
holds collectives -DN=2 -DCALLS=3
holds collectives -DN=2 -DCALLS=5 -DNO_FAULTS
holds collectives -DN=3 -DCALLS=2
holds collectives -DN=3 -DCALLS=3 -DNO_FAULTS
holds doorbell -DN=2
holds doorbell -DN=3

assertion="assertion violated"
hang="invalid end state"
breaks "$assertion" collectives -DN=2 -DNO_ARRIVAL
breaks "$assertion" collectives -DN=2 -DNO_STEP
breaks "$assertion" collectives -DN=2 -DONE_HALF
breaks "$assertion" collectives -DN=2 -DONE_CALL_LINE
breaks "$hang" collectives -DN=2 -DEQUAL_EPOCH
breaks "$hang" collectives -DN=2 -DNO_ABORT_LOOK
breaks "$hang" collectives -DN=2 -DNO_DEATH_LOOK
breaks "$hang" doorbell -DNO_RECHECK
breaks "$hang" doorbell -DLATE_DOORBELL
exit $failed
