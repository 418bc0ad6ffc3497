// Licensed under the Apache License, Version 2.0. See LICENSE.
#include "system.hpp"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace sar {

uint64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

void yield_core() { sched_yield(); }

uint32_t current_core() {
  const int core = sched_getcpu();
  return core < 0 ? 0 : static_cast<uint32_t>(core);
}

uint32_t available_cores() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) {
    // More cores than cpu_set_t can name: plenty.
    return CPU_SETSIZE;
  }
  return static_cast<uint32_t>(CPU_COUNT(&cores));
}

void move_to_core_outside(std::span<const uint32_t> taken) {
  cpu_set_t own;
  if (sched_getaffinity(0, sizeof own, &own) != 0) {
    return;
  }
  cpu_set_t outside = own;
  for (const uint32_t core : taken) {
    if (core < CPU_SETSIZE) {
      CPU_CLR(core, &outside);
    }
  }
  if (CPU_COUNT(&outside) != 0 && sched_setaffinity(0, sizeof outside, &outside) == 0) {
    sched_setaffinity(0, sizeof own, &own);
  }
}

void futex_wait(std::atomic<uint32_t> &word, uint32_t expected, uint64_t timeout_ns) {
  timespec timeout;
  timeout.tv_sec = static_cast<time_t>(timeout_ns / 1'000'000'000u);
  timeout.tv_nsec = static_cast<long>(timeout_ns % 1'000'000'000u);
  syscall(SYS_futex, &word, FUTEX_WAIT, expected, &timeout, nullptr, 0);
}

void futex_wake(std::atomic<uint32_t> &word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

const char *error_text(int error) {
  // glibc's own table: strerror may allocate, and strerrordesc_np is too new.
  thread_local char text[128];
  return strerror_r(error, text, sizeof text);
}

const char *error_and_cure(int error) {
  switch (error) {
    case EMFILE:
      return "Too many open files: this process has no file descriptors left (see ulimit -n)";
    case ENFILE:
      return "Too many open files on this machine (see fs.file-max)";
    default:
      return error_text(error);
  }
}

bool parse_number(const char *&text, uint64_t &number) {
  if (*text < '0' || *text > '9') {
    return false;
  }
  number = 0;
  for (; *text >= '0' && *text <= '9'; text++) {
    if (__builtin_mul_overflow(number, uint64_t{10}, &number) ||
        __builtin_add_overflow(number, static_cast<uint64_t>(*text - '0'), &number)) {
      return false;
    }
  }
  return true;
}

uint32_t running_threads() {
  const FileDescriptor file(open("/proc/loadavg", O_RDONLY | O_CLOEXEC));
  char line[128];
  const ssize_t bytes = file.valid() ? read(file.get(), line, sizeof line - 1) : 0;
  line[bytes > 0 ? bytes : 0] = 0;
  // As "0.00 0.01 0.05 2/345 6789": the number in front of the slash.
  const char *text = strchr(line, '/');
  while (text != nullptr && text > line && text[-1] != ' ') {
    text--;
  }
  uint64_t running;
  return text != nullptr && parse_number(text, running) ? static_cast<uint32_t>(running)
                                                        : UINT32_MAX;
}

namespace {

struct ProcessStat {
  char state;
  uint64_t threads;
  uint64_t start_time;
};

enum class Found { kYes, kNo, kUnknown };

// proc(5): pid (command) state ..., where the command may hold anything.
Found read_process_stat(int32_t pid, ProcessStat &stat) {
  char path[32];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  const FileDescriptor file(open(path, O_RDONLY | O_CLOEXEC));
  if (!file.valid()) {
    return errno == ENOENT ? Found::kNo : Found::kUnknown;
  }
  char line[1024];
  const ssize_t bytes = read(file.get(), line, sizeof line - 1);
  if (bytes <= 0) {
    return bytes < 0 && errno == ESRCH ? Found::kNo : Found::kUnknown;
  }
  line[bytes] = 0;
  const char *text = strrchr(line, ')');
  if (text == nullptr || text[1] != ' ' || text[2] == 0) {
    return Found::kUnknown;
  }
  stat.state = text[2];
  text += 3;
  for (int field = 4; field <= 22; field++) {
    if (*text++ != ' ') {
      return Found::kUnknown;
    }
    const bool negative = *text == '-';
    text += negative ? 1 : 0;
    uint64_t value;
    if (!parse_number(text, value)) {
      return Found::kUnknown;
    }
    if (field == 20) {
      stat.threads = value;
    } else if (field == 22) {
      stat.start_time = value;
    }
  }
  return Found::kYes;
}

// /proc/self/ns/pid is a link to "pid:[<inode>]".
uint64_t own_pid_namespace() {
  char link[64];
  const ssize_t bytes = readlink("/proc/self/ns/pid", link, sizeof link - 1);
  if (bytes <= 0) {
    return 0;
  }
  link[bytes] = 0;
  const char *text = strchr(link, '[');
  uint64_t inode;
  if (text == nullptr || !parse_number(++text, inode)) {
    return 0;
  }
  return inode;
}

}  // namespace

ProcessIdentity own_process() {
  ProcessIdentity self{static_cast<int32_t>(getpid()), 0, own_pid_namespace()};
  ProcessStat stat{};
  if (read_process_stat(self.pid, stat) == Found::kYes) {
    self.start_time = stat.start_time;
  }
  return self;
}

bool has_ended(const ProcessIdentity &process, const ProcessIdentity &self) {
  const bool comparable = self.start_time != 0 && self.pid_namespace != 0 &&
                          process.pid_namespace == self.pid_namespace && process.start_time != 0;
  if (!comparable || process.pid == self.pid) {
    return comparable && process.pid == self.pid && process.start_time != self.start_time;
  }
  ProcessStat stat{};
  switch (read_process_stat(process.pid, stat)) {
    case Found::kNo:
      return true;
    case Found::kUnknown:
      // /proc cannot be read, for want of a descriptor for instance: this needs none. What it takes
      // for alive (a zombie, another process with the same id) is looked at again later.
      return kill(process.pid, 0) != 0 && errno == ESRCH;
    case Found::kYes:
      break;
  }
  if (stat.start_time != process.start_time) {
    return true;
  }
  // A zombie with other threads is a process whose main thread has ended early.
  return stat.state == 'X' || (stat.state == 'Z' && stat.threads <= 1);
}

char process_state(const ProcessIdentity &process, const ProcessIdentity &self) {
  ProcessStat stat{};
  const bool found = self.pid_namespace != 0 && process.pid_namespace == self.pid_namespace &&
                     read_process_stat(process.pid, stat) == Found::kYes &&
                     stat.start_time == process.start_time;
  return found ? stat.state : '\0';
}

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) {
    close(fd_);
  }
}

int file_facts(int fd, const char *path, FileFacts &facts) {
  // statx, since binaries that call fstat do not load on older systems.
  struct statx found;
  const int flags = fd >= 0 ? AT_EMPTY_PATH : AT_SYMLINK_NOFOLLOW;
  if (statx(fd >= 0 ? fd : AT_FDCWD, fd >= 0 ? "" : path, flags, STATX_BASIC_STATS, &found) != 0) {
    return errno;
  }
  facts = FileFacts{S_ISREG(found.stx_mode),
                    found.stx_uid,
                    found.stx_mode & 07777u,
                    found.stx_size,
                    uint64_t{found.stx_dev_major} << 32 | found.stx_dev_minor,
                    found.stx_ino};
  return 0;
}

}  // namespace sar
