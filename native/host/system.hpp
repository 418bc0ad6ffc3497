// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// The few things the library asks of Linux. Only calls that are as old as glibc 2.28.
#ifndef SPARK_ALLREDUCE_HOST_SYSTEM_HPP
#define SPARK_ALLREDUCE_HOST_SYSTEM_HPP

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace sar {

// Monotonic.
uint64_t now_ns();

// A hint: this core will write the line soon, so its copies in other cores may go already.
inline void prefetch_to_write(const void *line) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" ::"m"(*static_cast<const char *>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

// Tells the core that this is a spin loop.
inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Lets another thread that is ready run on this core.
void yield_core();

// The number of the core on which this thread runs right now.
uint32_t current_core();

// Cores that this thread may use.
uint32_t available_cores();

// How many threads of the whole machine run or wait for a core right now; UINT32_MAX: not known.
uint32_t running_threads();

// Moves this thread to one of its cores that `taken` does not name, if there is one. It may use the
// same cores afterwards as before.
void move_to_core_outside(std::span<const uint32_t> taken);

// Sleeps while `word` is `expected`, at most `timeout_ns`; may return for no reason. Works between
// processes.
void futex_wait(std::atomic<uint32_t> &word, uint32_t expected, uint64_t timeout_ns);
// Wakes the one sleeper, if there is one.
void futex_wake(std::atomic<uint32_t> &word);

// Text of an errno value.
const char *error_text(int error);

// The same with the cure, where a limit of the process or of the machine was reached.
const char *error_and_cure(int error);

// Reads a whole decimal number and moves `text` behind it; false if there is none or it is too
// large.
bool parse_number(const char *&text, uint64_t &number);

// A process, so that another one with the same pid is not taken for it.
struct ProcessIdentity {
  int32_t pid;
  uint64_t start_time;     // clock ticks since boot; 0: unknown
  uint64_t pid_namespace;  // inode; 0: unknown
};

ProcessIdentity own_process();

// True only if it is certain that the process has ended.
bool has_ended(const ProcessIdentity &process, const ProcessIdentity &self);

// The state letter of proc(5) of a process that runs; 0 if it is not known.
char process_state(const ProcessIdentity &process, const ProcessIdentity &self);

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor();
  FileDescriptor(const FileDescriptor &) = delete;
  FileDescriptor &operator=(const FileDescriptor &) = delete;

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_;
};

struct FileFacts {
  bool regular;
  uint32_t owner;
  uint32_t permissions;
  uint64_t bytes;
  uint64_t device;
  uint64_t inode;
};

// Of an open file, or (if `fd` is negative) of a path that is not followed if it is a symbolic
// link. 0 or an errno value.
int file_facts(int fd, const char *path, FileFacts &facts);

// Zero-initialised; destroyed with the program.
class Mutex {
 public:
  constexpr Mutex() = default;
  void lock() { pthread_mutex_lock(&mutex_); }
  void unlock() { pthread_mutex_unlock(&mutex_); }

 private:
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
};

class LockGuard {
 public:
  explicit LockGuard(Mutex &mutex) : mutex_(mutex) { mutex_.lock(); }
  ~LockGuard() { mutex_.unlock(); }
  LockGuard(const LockGuard &) = delete;
  LockGuard &operator=(const LockGuard &) = delete;

 private:
  Mutex &mutex_;
};

}  // namespace sar

#endif  // SPARK_ALLREDUCE_HOST_SYSTEM_HPP
