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
# In each kernel of the disassembly $1 that $2 matches: at least one line that $3 matches.
each_has() {
  awk -v kernel="$2" -v wanted="$3" '
    function end() { if (name != "" && !found) { print name; bad = 1 } }
    /^[0-9a-f]+ <.*>:$|^\.visible \.entry / {
      end(); name = $0 ~ kernel ? $0 : ""; found = 0
    }
    $0 ~ wanted { found = 1 }
    END { end(); exit bad }' "$1" || fail "$4"
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for architecture in gfx90a gfx942 gfx950; do
  object=$images/kernels.$architecture.co
  "$compiler/llvm-readobj" --notes "$object" > "$work/notes"
  has "$work/notes" "amdhsa.target: *amdgcn-amd-amdhsa-*$architecture" "$object is not for $architecture"
  [ "$(grep -c '\.name: *sar_' "$work/notes")" = 48 ] || fail "$object does not hold 48 kernels"
  # No register is spilled: neither to memory, nor scalars to lanes of a vector register.
  awk '/\.private_segment_fixed_size:/ { memory = $2 } /\.sgpr_spill_count:/ { scalar = $2 }
    /\.symbol:/ { name = $2 } /\.vgpr_spill_count:/ && name ~ /^sar_/ {
      kernels++
      if ($2 != 0 || memory != 0 || scalar != 0) { print name; bad = 1 }
    }
    END { exit bad || kernels != 48 }' "$work/notes" || fail "these kernels of $object spill registers"
  "$compiler/llvm-objdump" -d "$object" > "$work/code"
  case $architecture in
    gfx90a) write_back='buffer_wbl2$' invalidate='buffer_invl2' ;;
    *) write_back='buffer_wbl2 sc0 sc1' invalidate='buffer_inv sc0 sc1' ;;
  esac
  # The disassembler ends a line with a comment: the encoding.
  sed -i 's, *//.*,,' "$work/code"
  each_has "$work/code" '<sar_collective_' 'global_load_dwordx4' "these kernels of $object have no 16-byte loads"
  each_has "$work/code" '<sar_collective_' 'global_store_dwordx4' "these kernels of $object have no 16-byte stores"
  each_has "$work/code" '<sar_collective_' "$write_back" "these kernels of $object do not write back at system scope"
  each_has "$work/code" '<sar_collective_' "$invalidate" "these kernels of $object do not invalidate at system scope"
  # A word and its epoch: one store, one load.
  each_has "$work/code" '<sar_low_latency_' 'global_store_dwordx2' "these kernels of $object have no 8-byte packets"
done
for type in 0 1 2 3 4 5; do
  ptx=$images/kernels.$type.ptx
  has "$ptx" "^\.target sm_90" "$ptx is not for sm_90"
  [ "$(grep -c '\.entry sar_' "$ptx")" = 8 ] || fail "$ptx does not hold 8 kernels"
  each_has "$ptx" 'sar_collective_' 'ld\.global.*v4\.(b32|u32)' "these kernels of $ptx have no 16-byte loads"
  each_has "$ptx" 'sar_collective_' 'st\.global.*v4\.(b32|u32)' "these kernels of $ptx have no 16-byte stores"
  each_has "$ptx" 'sar_collective_' 'st\.release\.sys|fence\.(acq_rel|sc)\.sys' "these kernels of $ptx do not release at system scope"
  each_has "$ptx" 'sar_collective_' 'ld\.acquire\.sys|fence\.(acq_rel|sc)\.sys' "these kernels of $ptx do not acquire at system scope"
  # Launched while the kernel before on the stream is ending.
  each_has "$ptx" 'sar_' 'griddepcontrol\.wait' "these kernels of $ptx do not wait for the kernel before them"
  each_has "$ptx" 'sar_low_latency_' 'st\.relaxed\.sys\.(global\.)?(b|u)64' "these kernels of $ptx have no 8-byte packets"
  # PTX has no registers to spill: what it keeps on a stack is only the report of a fault, in a function of its own.
done
echo "device code: 3 code objects of 48 kernels, PTX of 6 types"
