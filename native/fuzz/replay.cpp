// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// Runs a fuzz target once on each file of the folder that is named: the kept corpus, in the
// ordinary tests, with any compiler.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "fuzzing.hpp"

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  int inputs = 0;
  for (const auto &entry : std::filesystem::directory_iterator(argv[1])) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size());
    inputs++;
  }
  printf("%d inputs\n", inputs);
  return inputs == 0;  // an empty corpus is a wrong path
}
