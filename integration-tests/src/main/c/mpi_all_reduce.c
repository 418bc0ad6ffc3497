/*
 * Licensed under the Apache License, Version 2.0. See LICENSE.
 *
 * The all-reduce of an MPI library, measured as bin/allreduce-perf measures ours: float32 sums, out
 * of place, buffers that are page aligned and touched before, as many calls before and within the
 * time unless that takes more than a second, the mean over the calls and over the ranks, every element checked afterwards.
 *
 * Arguments: bytes:warmup:iterations, once for each size. Rank 0 prints the library, and then for
 * each size: bytes, microseconds, wrong elements of all ranks.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kPeriod = 1021, kPage = 4096, kFewest = 10 };

/* Sums of these are exact, whatever the order a library adds in. */
static float input(int rank, long i) { return (float)((i % kPeriod) * (rank + 1)); }

static float *allocate(long bytes) {
  const size_t pages = ((size_t)bytes + kPage - 1) / kPage + 1;
  float *memory = aligned_alloc(kPage, pages * kPage);
  if (memory == NULL) {
    fprintf(stderr, "no memory for %ld bytes\n", bytes);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  memset(memory, 0, pages * kPage);
  return memory;
}

static void all_reduce(const float *in, float *out, long count) {
  if (MPI_Allreduce(in, out, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) != MPI_SUCCESS) {
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}

// A call of more ranks than cores can take a hundredth of a second: then fewer calls are as steady.
static int within_a_second(int iterations, double seconds_per_call) {
  while (iterations > kFewest && iterations * seconds_per_call > 1.0) iterations /= 2;
  MPI_Bcast(&iterations, 1, MPI_INT, 0, MPI_COMM_WORLD);
  return iterations;
}

static void measure(long bytes, int warmup, int iterations, float *in, float *out) {
  int rank;
  int ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const long count = bytes / (long)sizeof(float);
  for (long i = 0; i < count; i++) in[i] = input(rank, i);
  const double warmup_start = MPI_Wtime();
  for (int i = 0; i < warmup; i++) all_reduce(in, out, count);
  iterations = within_a_second(iterations, (MPI_Wtime() - warmup_start) / warmup);
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  for (int i = 0; i < iterations; i++) all_reduce(in, out, count);
  const double mine = (MPI_Wtime() - start) / iterations * 1e6 / ranks;

  long mine_wrong = 0;
  const int sum_of_factors = ranks * (ranks + 1) / 2;
  for (long i = 0; i < count; i++) {
    if (out[i] != (float)((i % kPeriod) * sum_of_factors)) mine_wrong++;
  }
  double mean = 0;
  long wrong = 0;
  MPI_Reduce(&mine, &mean, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  MPI_Reduce(&mine_wrong, &wrong, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    printf("%ld %.4f %ld\n", bytes, mean, wrong);
    fflush(stdout);
  }
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(version, &length);
    version[strcspn(version, "\n")] = '\0';
    printf("%s\n", version);
  }
  long most = 0;
  for (int i = 1; i < argc; i++) {
    const long bytes = strtol(argv[i], NULL, 10);
    most = bytes > most ? bytes : most;
  }
  float *in = allocate(most);
  float *out = allocate(most);
  int status = 0;
  for (int i = 1; i < argc; i++) {
    long bytes;
    int warmup;
    int iterations;
    if (sscanf(argv[i], "%ld:%d:%d", &bytes, &warmup, &iterations) != 3 || warmup < 1 || iterations < 1) {
      fprintf(stderr, "not bytes:warmup:iterations: %s\n", argv[i]);
      status = 2;
      break;
    }
    measure(bytes, warmup, iterations, in, out);
  }
  free(out);
  free(in);
  MPI_Finalize();
  return status;
}
