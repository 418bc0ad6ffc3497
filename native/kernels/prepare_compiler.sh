#!/bin/sh
# Licensed under the Apache License, Version 2.0. See LICENSE.
#
# prepare_compiler.sh <folder>: makes what native/pom.xml has unpacked from org.bytedeco:llvm a compiler that
# runs: a jar knows neither permissions nor links. A build that did not come through Maven has nothing
# there yet, and asks Maven for it.
set -eu
folder=$1
native=$(cd "$(dirname "$0")/.." && pwd)
if [ ! -f "$folder/clang" ] && [ "$folder" = "$native/target/device-compiler/org/bytedeco/llvm/linux-x86_64" ]; then
  echo "Unpacking the device compiler, with Maven (147 MB at the first time)"
  mvn -q -B -ntp -f "$native/pom.xml" dependency:unpack@device-compiler
fi
if [ ! -f "$folder/clang" ]; then
  echo "prepare_compiler.sh: there is no clang in $folder" >&2
  exit 1
fi
[ -x "$folder/clang" ] && [ -e "$folder/ld.lld" ] && exit 0
chmod +x "$folder/clang" "$folder/lld" "$folder/llvm-objdump" "$folder/llvm-readobj"
ln -sf libLLVM.so "$folder/libLLVM.so.20.1"
ln -sf libclang-cpp.so "$folder/libclang-cpp.so.20.1"
ln -sf lld "$folder/ld.lld"
