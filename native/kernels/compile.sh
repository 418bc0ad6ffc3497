#!/bin/sh
# Licensed under the Apache License, Version 2.0. See LICENSE.
#
# compile.sh <compiler folder> <target> <output> <source> [flags]: one device source to PTX (target
# sm_90), to an AMD code object (target gfx...), or, for the tests, to an object file for the CPU (target cpu).
set -eu
compiler=$1
target=$2
output=$3
source=$4
shift 4
export LD_LIBRARY_PATH="$compiler" PATH="$compiler:$PATH"
# -ffp-contract=off: the same bits as the host backend.
flags="-x c++ -std=c++20 -O3 -ffreestanding -nogpulib -fno-exceptions -fno-rtti -ffp-contract=off \
  -Wall -Wextra -Werror"
case $target in
  sm_*)
    exec "$compiler/clang" $flags --target=nvptx64-nvidia-cuda -march="$target" \
      --cuda-feature=+ptx78 "$@" -S "$source" -o "$output" ;;
  gfx*)
    exec "$compiler/clang" $flags --target=amdgcn-amd-amdhsa -mcpu="$target" -fuse-ld=lld "$@" \
      "$source" -o "$output" ;;
  cpu)
    exec "$compiler/clang" -x c++ -std=c++20 -O1 -g -fPIC -ffp-contract=off -Wall -Wextra -Werror \
      "$@" -c "$source" -o "$output" ;;
esac
echo "compile.sh: unknown target $target" >&2
exit 1
