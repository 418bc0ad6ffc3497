// Licensed under the Apache License, Version 2.0. See LICENSE.
#include "segment.hpp"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "failure.hpp"

namespace sar {

// An entry of the process's list of mappings.
struct MappedSegment {
  char name[kNameBytes];
  char *base;
  uint64_t bytes;
  uint32_t references;
  MappedSegment *next;
};

namespace {

constinit Mutex mappings_mutex;
constinit MappedSegment *mappings = nullptr;

struct Path {
  char text[sizeof kSharedMemoryFolder + 1 + 255];  // NAME_MAX
};

Path path_of(const char *name) {
  Path path;
  snprintf(path.text, sizeof path.text, "%s/%s", kSharedMemoryFolder, name);
  return path;
}

// All of a name but its random part.
int write_name_prefix(char *name, uint32_t uid, const ProcessIdentity &process) {
  return snprintf(name, kNameBytes, "%s%u-%d-%llu-%llu-", kNamePrefix, uid, process.pid,
                  static_cast<unsigned long long>(process.start_time),
                  static_cast<unsigned long long>(process.pid_namespace));
}

bool is_random_part(const char *text) {
  for (uint32_t i = 0; i < 2 * kNameRandomBytes; i++) {
    if (!((text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f'))) {
      return false;
    }
  }
  return text[2 * kNameRandomBytes] == 0;
}

sar_status write_new_name(Handle &handle) {
  uint8_t random[kNameRandomBytes];
  if (getrandom(random, sizeof random, 0) != static_cast<ssize_t>(sizeof random)) {
    return refuse(SAR_SYSTEM_ERROR, "no random bytes for the name of a segment: %s",
                  error_text(errno));
  }
  const ProcessIdentity self{handle.pid, handle.start_time, handle.pid_namespace};
  int length = write_name_prefix(handle.name, geteuid(), self);
  for (const uint8_t byte : random) {
    length +=
        snprintf(handle.name + length, kNameBytes - static_cast<size_t>(length), "%02x", byte);
  }
  return SAR_OK;
}

sar_status out_of_shared_memory(uint64_t bytes, const char *reason) {
  return refuse(
      SAR_OUT_OF_MEMORY,
      "%llu bytes of shared memory are not to be had in %s (%s): ask for a smaller arena "
      "or staging area, enlarge %s (for a container: --shm-size), raise the limit of file "
      "sizes, or remove what other programs left there",
      static_cast<unsigned long long>(bytes), kSharedMemoryFolder, reason, kSharedMemoryFolder);
}

// Allocates every page now: on a full /dev/shm this fails, where a later access would kill the
// process.
sar_status allocate_pages(int fd, uint64_t bytes) {
  rlimit limit;
  if (bytes > INT64_MAX || (getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
                            limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < bytes)) {
    return out_of_shared_memory(bytes, "over the limit of file sizes");
  }
  int error;
  do {
    error = posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  } while (error == EINTR);
  if (error == ENOSPC || error == EFBIG || error == ENOMEM) {
    return out_of_shared_memory(bytes, error_text(error));
  }
  if (error != 0) {
    return refuse(SAR_SYSTEM_ERROR, "could not allocate a segment in %s: %s", kSharedMemoryFolder,
                  error_text(error));
  }
  return SAR_OK;
}

// Maps the file and enters it in the list, which the caller has locked.
sar_status map_segment(int fd, const char *name, uint64_t bytes, SegmentReference &segment) {
  auto *entry = static_cast<MappedSegment *>(calloc(1, sizeof(MappedSegment)));
  if (entry == nullptr) {
    return refuse(SAR_OUT_OF_MEMORY, "out of heap memory");
  }
  void *base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) {
    const int error = errno;
    free(entry);
    return refuse(error == ENOMEM ? SAR_OUT_OF_MEMORY : SAR_SYSTEM_ERROR,
                  "could not map %llu bytes of shared memory: %s (see ulimit -v and "
                  "vm.max_map_count)",
                  static_cast<unsigned long long>(bytes), error_text(error));
  }
  memcpy(entry->name, name, kNameBytes);
  entry->base = static_cast<char *>(base);
  entry->bytes = bytes;
  entry->references = 1;
  entry->next = mappings;
  mappings = entry;
  segment = SegmentReference(entry);
  return SAR_OK;
}

void write_header(const Handle &handle, Header &header) {
  header.magic = kSegmentMagic;
  header.layout_version = handle.layout_version;
  header.rank = handle.rank;
  header.session_high = handle.session_high;
  header.session_low = handle.session_low;
  header.world_size = handle.world_size;
  header.first_epoch = handle.first_epoch;
  header.pid = handle.pid;
  header.start_time = handle.start_time;
  header.pid_namespace = handle.pid_namespace;
  header.segment_bytes = handle.segment_bytes;
  header.arena_bytes = handle.arena_bytes;
  header.staging_bytes = handle.staging_bytes;
}

bool header_agrees(const Handle &handle, const Header &header) {
  return header.magic == kSegmentMagic && header.layout_version == handle.layout_version &&
         header.rank == handle.rank && header.session_high == handle.session_high &&
         header.session_low == handle.session_low && header.world_size == handle.world_size &&
         header.first_epoch == handle.first_epoch && header.pid == handle.pid &&
         header.start_time == handle.start_time && header.pid_namespace == handle.pid_namespace &&
         header.segment_bytes == handle.segment_bytes && header.arena_bytes == handle.arena_bytes &&
         header.staging_bytes == handle.staging_bytes;
}

sar_status refuse_segment(const Handle &handle, const char *what) {
  return refuse(SAR_INVALID_ARGUMENT, "the handle of rank %u names a segment that %s: %s/%s",
                handle.rank, what, kSharedMemoryFolder, handle.name);
}

sar_status open_and_map(const Handle &handle, SegmentReference &segment) {
  const FileDescriptor file(
      open(path_of(handle.name).text, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file.valid()) {
    switch (errno) {
      case ENOENT:
        return refuse(SAR_PEER_LOST,
                      "the segment of rank %u (process %d) is gone: that rank has ended, or runs "
                      "on another host or in another container; all ranks must share one %s",
                      handle.rank, handle.pid, kSharedMemoryFolder);
      case ELOOP:
        return refuse_segment(handle, "is a symbolic link");
      case EACCES:
        return refuse_segment(handle, "belongs to another user");
      default:
        return refuse(SAR_SYSTEM_ERROR, "could not open the segment of rank %u: %s", handle.rank,
                      error_and_cure(errno));
    }
  }
  FileFacts facts;
  if (const int error = file_facts(file.get(), nullptr, facts); error != 0) {
    return refuse(SAR_SYSTEM_ERROR, "could not examine the segment of rank %u: %s", handle.rank,
                  error_text(error));
  }
  if (!facts.regular) {
    return refuse_segment(handle, "is no regular file");
  }
  if (facts.owner != geteuid()) {
    return refuse_segment(handle, "belongs to another user");
  }
  if (facts.permissions != 0600) {
    return refuse_segment(handle, "other users may access");
  }
  if (facts.bytes != handle.segment_bytes) {
    return refuse_segment(handle, "has another size than the handle says");
  }
  return map_segment(file.get(), handle.name, handle.segment_bytes, segment);
}

}  // namespace

char *SegmentReference::base() const { return segment_->base; }

void SegmentReference::release() {
  if (segment_ == nullptr) {
    return;
  }
  const LockGuard guard(mappings_mutex);
  if (--segment_->references == 0) {
    MappedSegment **link = &mappings;
    while (*link != segment_) {
      link = &(*link)->next;
    }
    *link = segment_->next;
    munmap(segment_->base, segment_->bytes);
    free(segment_);
  }
  segment_ = nullptr;
}

bool has_proper_name(const Handle &handle) {
  char prefix[kNameBytes];
  const ProcessIdentity process{handle.pid, handle.start_time, handle.pid_namespace};
  const int length = write_name_prefix(prefix, geteuid(), process);
  return memchr(handle.name, 0, kNameBytes) != nullptr &&
         strncmp(handle.name, prefix, static_cast<size_t>(length)) == 0 &&
         strlen(handle.name) == static_cast<size_t>(length) + 2 * kNameRandomBytes &&
         is_random_part(handle.name + length);
}

sar_status create_segment(Handle &handle, SegmentReference &segment) {
  if (const sar_status status = write_new_name(handle); status != SAR_OK) {
    return status;
  }
  const FileDescriptor file(
      open(path_of(handle.name).text, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.valid()) {
    return errno == EMFILE || errno == ENFILE
               ? refuse(SAR_SYSTEM_ERROR, "could not create a segment in %s: %s",
                        kSharedMemoryFolder, error_and_cure(errno))
               : refuse(SAR_SYSTEM_ERROR,
                        "could not create a segment in %s: %s (it must exist and be "
                        "writable for this user)",
                        kSharedMemoryFolder, error_text(errno));
  }
  sar_status status = allocate_pages(file.get(), handle.segment_bytes);
  if (status == SAR_OK && fchmod(file.get(), 0600) != 0) {  // whatever the umask has taken away
    status = refuse(SAR_SYSTEM_ERROR, "could not set the permissions of a segment: %s",
                    error_text(errno));
  }
  if (status == SAR_OK) {
    const LockGuard guard(mappings_mutex);
    status = map_segment(file.get(), handle.name, handle.segment_bytes, segment);
  }
  if (status != SAR_OK) {
    unlink_segment(handle);
    return status;
  }
  write_header(handle, header_of(segment.base()));
  signal_pad_of(segment.base()).step.epoch.store(handle.first_epoch, std::memory_order_relaxed);
  return SAR_OK;
}

sar_status open_segment(const Handle &handle, SegmentReference &segment) {
  SegmentReference opened;
  {
    const LockGuard guard(mappings_mutex);
    MappedSegment *known = mappings;
    while (known != nullptr && strcmp(known->name, handle.name) != 0) {
      known = known->next;
    }
    if (known != nullptr && known->bytes != handle.segment_bytes) {
      return refuse_segment(handle, "has another size than the handle says");
    }
    if (known != nullptr) {
      known->references++;
      opened = SegmentReference(known);
    } else if (const sar_status status = open_and_map(handle, opened); status != SAR_OK) {
      return status;
    }
  }
  if (!header_agrees(handle, header_of(opened.base()))) {
    return refuse_segment(handle, "belongs to another session or rank");
  }
  segment = static_cast<SegmentReference &&>(opened);
  return SAR_OK;
}

void unlink_segment(const Handle &handle) { unlink(path_of(handle.name).text); }

namespace {

// Takes a name apart into user and process; false if it is not one of ours.
bool parse_name(const char *name, uint64_t &uid, ProcessIdentity &process) {
  if (strncmp(name, kNamePrefix, sizeof kNamePrefix - 1) != 0) {
    return false;
  }
  const char *text = name + sizeof kNamePrefix - 1;
  uint64_t pid;
  if (!parse_number(text, uid) || *text++ != '-' || !parse_number(text, pid) || *text++ != '-' ||
      !parse_number(text, process.start_time) || *text++ != '-' ||
      !parse_number(text, process.pid_namespace) || *text++ != '-' || pid == 0 || pid > INT32_MAX) {
    return false;
  }
  process.pid = static_cast<int32_t>(pid);
  return is_random_part(text);
}

bool is_leftover(const char *name, const ProcessIdentity &self) {
  uint64_t uid;
  ProcessIdentity process;
  FileFacts facts;
  return parse_name(name, uid, process) && uid == geteuid() && has_ended(process, self) &&
         file_facts(-1, path_of(name).text, facts) == 0 && facts.regular &&
         facts.owner == geteuid();
}

}  // namespace

sar_status sweep_segments(uint32_t &removed) {
  removed = 0;
  DIR *folder = opendir(kSharedMemoryFolder);
  if (folder == nullptr) {
    return refuse(SAR_SYSTEM_ERROR, "could not list %s: %s", kSharedMemoryFolder,
                  error_and_cure(errno));
  }
  const ProcessIdentity self = own_process();
  while (const dirent *entry = readdir(folder)) {
    if (is_leftover(entry->d_name, self) && unlink(path_of(entry->d_name).text) == 0) {
      removed++;
    }
  }
  closedir(folder);
  return SAR_OK;
}

}  // namespace sar
