#!/bin/sh
# Licensed under the Apache License, Version 2.0. See LICENSE.
#
# device_code_test.sh <compiler folder> <folder of the compiled kernels>: what must be in the device code,
# read from the disassembly and the metadata.
set -eu
compiler=$1
images=$2
export LD_LIBRARY_PATH="$compiler"
fail() {
  echo "device_code_test: $*" >&2
  exit 1
}
has() { grep -Eq "$2" "$1" || fail "$3"; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for architecture in gfx90a gfx942 gfx950; do
  object=$images/kernels.$architecture.co
  "$compiler/llvm-readobj" --notes "$object" > "$work/notes"
  has "$work/notes" "amdhsa.target: *amdgcn-amd-amdhsa-*$architecture" "$object is not for $architecture"
  [ "$(grep -c '\.name: *sar_' "$work/notes")" = 48 ] || fail "$object does not hold 48 kernels"
  if grep -E "\.vgpr_spill_count: *[1-9]|\.private_segment_fixed_size: *[1-9][0-9]{3}" "$work/notes"; then
    fail "$object spills registers to memory"
  fi
  "$compiler/llvm-objdump" -d "$object" > "$work/code"
  has "$work/code" "global_load_dwordx4" "$object has no 16-byte loads"
  has "$work/code" "global_store_dwordx4" "$object has no 16-byte stores"
  case $architecture in
    gfx90a)
      has "$work/code" "buffer_wbl2" "$object does not write back at system scope"
      has "$work/code" "buffer_invl2" "$object does not invalidate at system scope" ;;
    *)
      has "$work/code" "buffer_wbl2 sc0 sc1" "$object does not write back at system scope"
      has "$work/code" "buffer_inv sc0 sc1" "$object does not invalidate at system scope" ;;
  esac
done
for type in 0 1 2 3 4 5; do
  ptx=$images/kernels.$type.ptx
  has "$ptx" "^\.target sm_90" "$ptx is not for sm_90"
  [ "$(grep -c '\.entry sar_' "$ptx")" = 8 ] || fail "$ptx does not hold 8 kernels"
  has "$ptx" "ld\.global.*v4\.(b32|u32)" "$ptx has no 16-byte loads"
  has "$ptx" "st\.global.*v4\.(b32|u32)" "$ptx has no 16-byte stores"
  has "$ptx" "st\.release\.sys|fence\.(acq_rel|sc)\.sys" "$ptx does not release at system scope"
  has "$ptx" "ld\.acquire\.sys|fence\.(acq_rel|sc)\.sys" "$ptx does not acquire at system scope"
done
echo "device code: 3 code objects of 48 kernels, PTX of 6 types"
