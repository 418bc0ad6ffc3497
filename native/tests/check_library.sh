#!/bin/sh
# Licensed under the Apache License, Version 2.0. See LICENSE.
#
# check_library.sh <library>: that it loads on systems with glibc 2.28 (RHEL 8) and without
# libstdc++, and exports nothing but the C header.
set -eu
library=$1
failed=0

complain() {
  echo "$library: $1" >&2
  failed=1
}

needed=$(readelf --dynamic --wide "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\].*/\1/p')
for name in $needed; do
  case $name in
    libc.so.6 | libm.so.6 | libdl.so.2 | libpthread.so.0 | ld-linux*.so.*) ;;
    *) complain "needs $name" ;;
  esac
done

versions=$(objdump -T "$library" | grep -o 'GLIBC_[0-9.]*' | sort -u)
for version in $versions; do
  newest=$(printf '%s\nGLIBC_2.28\n' "$version" | sort -V | tail -n 1)
  [ "$newest" = GLIBC_2.28 ] || complain "needs $version"
done
[ -n "$versions" ] || complain "has no versioned symbols: was it read at all?"

exported=$(nm --dynamic --defined-only "$library" | awk '{ print $3 }')
for symbol in $exported; do
  case $symbol in
    sar_*) ;;
    *) complain "exports $symbol" ;;
  esac
done
[ -n "$exported" ] || complain "exports nothing"

[ "$failed" -eq 0 ] && echo "$library: needs" $needed "and at most" \
  "$(printf '%s\n' "$versions" | sort -V | tail -n 1)," "exports $(echo "$exported" | wc -l) symbols"
exit "$failed"
