// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// Preloaded into the processes of the fault campaign, and into nothing else: lets a program make
// system calls of its own process fail, on demand. Compiled by bin/fault-campaign.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

// Which of the mappings of shared memory that follow fails; 0: none.
static atomic_int mappings_until_failure;
// The thread that is watched, and whether it has gone to sleep on a peer's account.
static atomic_int watched_thread;
static atomic_int sleeping;
static atomic_long clock_offset;

void shim_fail_mapping(int number) { mappings_until_failure = number; }

void shim_watch_this_thread(void) {
  sleeping = 0;
  watched_thread = gettid();
}

int shim_sleeps(void) { return sleeping; }

void shim_shift_clock(long seconds) { clock_offset = seconds; }

// No file can be opened any more: descriptors that are open stay so.
void shim_exhaust_descriptors(int exhaust) {
  struct rlimit limit;
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = exhaust ? 0 : limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

static long raw(long number, long a, long b, long c, long d, long e, long f) {
  long result;
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  if (result < 0 && result > -4096) {
    errno = (int)-result;
    return -1;
  }
  return result;
}

static int is_shared_memory(int fd) {
  char name[32];
  char path[64];
  snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(name, path, sizeof path - 1);
  return length > 0 && strncmp(path, "/dev/shm/", 9) == 0;
}

void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) {
  if (mappings_until_failure > 0 && fd >= 0 && (flags & MAP_SHARED) != 0 && is_shared_memory(fd) &&
      --mappings_until_failure == 0) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return (void *)raw(SYS_mmap, (long)address, (long)bytes, protection, flags, fd, offset);
}

void *mmap64(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) {
  return mmap(address, bytes, protection, flags, fd, offset);
}

// A futex that processes share is the doorbell on which a rank sleeps until a peer rings.
long syscall(long number, ...) {
  va_list list;
  va_start(list, number);
  const long a = va_arg(list, long);
  const long b = va_arg(list, long);
  const long c = va_arg(list, long);
  const long d = va_arg(list, long);
  const long e = va_arg(list, long);
  const long f = va_arg(list, long);
  va_end(list);
  if (number == SYS_futex && (int)b == FUTEX_WAIT && watched_thread == gettid()) {
    sleeping = 1;
  }
  return raw(number, a, b, c, d, e, f);
}

static int (*next_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void find_next(void) {
  *(void **)&next_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  const int result = next_clock_gettime != NULL
                         ? next_clock_gettime(clock, now)
                         : (int)raw(SYS_clock_gettime, clock, (long)now, 0, 0, 0, 0);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    now->tv_sec += clock_offset;
  }
  return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec precise;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &precise);
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *result) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (result != NULL) {
    *result = now.tv_sec;
  }
  return now.tv_sec;
}
