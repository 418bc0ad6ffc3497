#!/bin/sh
# Licensed under the Apache License, Version 2.0. See LICENSE.
#
# fetch_compiler.sh <folder>: puts clang 20 and lld with the AMDGPU and NVPTX targets into <folder>, from
# the Maven artifact org.bytedeco:llvm, through the Maven that builds the project anyway.
set -eu
version=20.1.7-1.5.12
folder=$1
[ -x "$folder/clang" ] && [ "$(cat "$folder/version" 2>/dev/null)" = "$version" ] && exit 0
mkdir -p "$folder"
jar=$folder/llvm-$version-linux-x86_64.jar
mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy \
    -Dartifact=org.bytedeco:llvm:$version:jar:linux-x86_64 -DoutputDirectory="$folder"
inside=org/bytedeco/llvm/linux-x86_64
for file in clang lld llvm-objdump llvm-readobj libLLVM.so libclang-cpp.so; do
  unzip -q -o -j "$jar" "$inside/$file" -d "$folder"
done
unzip -q -o "$jar" "$inside/lib/clang/*" -d "$folder/unpacked"
rm -rf "$folder/lib"
mv "$folder/unpacked/$inside/lib" "$folder/lib"
rm -rf "$folder/unpacked" "$jar"
chmod +x "$folder/clang" "$folder/lld" "$folder/llvm-objdump" "$folder/llvm-readobj"
ln -sf libLLVM.so "$folder/libLLVM.so.20.1"
ln -sf libclang-cpp.so "$folder/libclang-cpp.so.20.1"
ln -sf lld "$folder/ld.lld"
echo "$version" > "$folder/version"
