// SPDX-License-Identifier: Apache-2.0
// A preloaded library that makes system calls fail, for tests/faults/mutate.py, which compiles it.
//
//   FAIL_CALL    one of the names below, or malloc
//   FAIL_AT      the call that fails, counted from 1 over all calls of that name below FAIL_UNDER; 0: none, they are counted
//   FAIL_FOR     how many calls fail from there on (default 1; 0: all)
//   FAIL_ERRNO   the number that errno gets; -1: a short write or read, of half of what was asked for
//   FAIL_UNDER   calls about paths below this directory count, and no others
//   FAIL_BYTES   what a malloc must ask for to count
//   FAIL_LIMIT   NUMBER:VALUE: a resource limit; that of RLIMIT_AS is what may be added to what the process has
//   FAIL_RUN     a directory: allocations fail and limits hold from the first file on that is opened below it
//   FAIL_MODES   1: the modes of files and directories hold, for root as well
//   FAIL_RANK    the rank that is disturbed; without it, all
//   FAIL_GATE    a pipe: the call does not fail, but waits until somebody has opened the pipe and written or closed it
//   FAIL_REPORT  a file that gets a line at the end for each name: how many calls there were
//
// Only a program whose name begins with "trireme" is disturbed: the daemons that MPI starts inherit the library.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum call { WRITE, PWRITE64, READ, PREAD64, FSYNC, FDATASYNC, CLOSE, FTRUNCATE64, FALLOCATE64, OPEN, RENAME, REMOVE, MKDIR, FLOCK, FFLUSH, MALLOC, CALLS };
static const char* const names[CALLS] = {"write",       "pwrite64", "read",   "pread64", "fsync", "fdatasync", "close", "ftruncate64",
                                         "fallocate64", "open",     "rename", "remove",  "mkdir", "flock", "fflush", "malloc"};

static const char *under, *report, *run, *gate;
static long at, lasts = 1, number, calls[CALLS];
static int armed, active, failing = CALLS;
static size_t large;

static int is_disturbed(void) {
  const char *rank = getenv("OMPI_COMM_WORLD_RANK"), *wanted = getenv("FAIL_RANK");
  rank = rank ? rank : getenv("PMIX_RANK"); // srun --mpi=pmix
  rank = rank ? rank : getenv("PMI_RANK");
  return strncmp(program_invocation_short_name, "trireme", 7) == 0 && (!wanted || (rank && strcmp(rank, wanted) == 0));
}

/// Takes from root the right to pass over modes.
static void obey_modes(void) {
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct data[2];
  if (syscall(SYS_capget, &header, data) != 0)
    return;
  const unsigned taken = 1U << CAP_DAC_OVERRIDE | 1U << CAP_DAC_READ_SEARCH;
  data[0].effective &= ~taken;
  data[0].permitted &= ~taken;
  data[0].inheritable &= ~taken;
  if (syscall(SYS_capset, &header, data) != 0)
    perror("fail_call: capset");
}

__attribute__((constructor)) static void begin(void) {
  const char* text;
  if (!is_disturbed())
    return;
  run = getenv("FAIL_RUN");
  under = getenv("FAIL_UNDER");
  report = getenv("FAIL_REPORT");
  gate = getenv("FAIL_GATE");
  at = (text = getenv("FAIL_AT")) ? atol(text) : 0;
  lasts = (text = getenv("FAIL_FOR")) ? atol(text) : 1;
  number = (text = getenv("FAIL_ERRNO")) ? atol(text) : EIO;
  large = (text = getenv("FAIL_BYTES")) ? strtoul(text, NULL, 10) : 0;
  text = getenv("FAIL_CALL");
  for (int i = 0; text && i < CALLS; ++i)
    failing = strcmp(names[i], text) == 0 ? i : failing;
  if (getenv("FAIL_MODES"))
    obey_modes();
  active = under != NULL;
}

__attribute__((destructor)) static void end(void) {
  const char* path = report;
  active = armed = 0;
  FILE* out = path ? fopen(path, "w") : NULL;
  for (int i = 0; out && i < CALLS; ++i)
    fprintf(out, "%s %ld\n", names[i], calls[i]);
  if (out)
    fclose(out);
}

/// Counts the call; whether it fails.
static int strikes(enum call call) {
  const long now = __atomic_add_fetch(&calls[call], 1, __ATOMIC_RELAXED);
  return (int)call == failing && at > 0 && now >= at && (lasts == 0 || now < at + lasts);
}

#define REAL(result, call, ...) ((result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #call))

/// Returns 0: the call goes on then.
static int wait_at_gate(void) {
  char byte;
  const int file = REAL(int, open64, const char*, int, ...)(gate, O_RDONLY);
  if (REAL(ssize_t, read, int, void*, size_t)(file, &byte, 1) < 0)
    perror("fail_call: gate");
  REAL(int, close, int)(file);
  return 0;
}

static int fails_at(enum call call, const char* path) {
  return active && strncmp(path, under, strlen(under)) == 0 && strikes(call) && (!gate || wait_at_gate());
}

static int fails_on(enum call call, int file) {
  char link[64], path[4096];
  if (!active)
    return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (length <= 0)
    return 0;
  path[length] = 0;
  return fails_at(call, path);
}

static int fail(void) {
  errno = (int)number;
  return -1;
}

static void arm(const char* path) {
  if (!run || armed || strncmp(path, run, strlen(run)) != 0)
    return;
  armed = 1;
  const char* text = getenv("FAIL_LIMIT");
  int which;
  unsigned long value, size = 0;
  if (!text || sscanf(text, "%d:%lu", &which, &value) != 2)
    return;
  FILE* status = fopen("/proc/self/status", "r");
  for (char line[256]; which == RLIMIT_AS && status && fgets(line, sizeof line, status);)
    if (sscanf(line, "VmSize: %lu kB", &size) == 1)
      break;
  if (status)
    fclose(status);
  const struct rlimit limit = {value + 1024 * size, value + 1024 * size};
  setrlimit(which, &limit);
}

#define MOVES_BYTES(call)                      \
  if (fails_on(call, file)) {                  \
    if (number >= 0)                           \
      return fail();                           \
    count = count > 1 ? count / 2 : count;     \
  }

ssize_t write(int file, const void* data, size_t count) {
  MOVES_BYTES(WRITE)
  return REAL(ssize_t, write, int, const void*, size_t)(file, data, count);
}
ssize_t read(int file, void* data, size_t count) {
  MOVES_BYTES(READ)
  return REAL(ssize_t, read, int, void*, size_t)(file, data, count);
}
ssize_t pwrite64(int file, const void* data, size_t count, off64_t offset) {
  MOVES_BYTES(PWRITE64)
  return REAL(ssize_t, pwrite64, int, const void*, size_t, off64_t)(file, data, count, offset);
}
ssize_t pread64(int file, void* data, size_t count, off64_t offset) {
  MOVES_BYTES(PREAD64)
  return REAL(ssize_t, pread64, int, void*, size_t, off64_t)(file, data, count, offset);
}
ssize_t pwrite(int file, const void* data, size_t count, off_t offset) { return pwrite64(file, data, count, offset); }
ssize_t pread(int file, void* data, size_t count, off_t offset) { return pread64(file, data, count, offset); }
int fsync(int file) { return fails_on(FSYNC, file) ? fail() : REAL(int, fsync, int)(file); }
int fdatasync(int file) { return fails_on(FDATASYNC, file) ? fail() : REAL(int, fdatasync, int)(file); }
int flock(int file, int operation) { return fails_on(FLOCK, file) ? fail() : REAL(int, flock, int, int)(file, operation); }
int fflush(FILE* file) { // whose own write is the C library's
  return file && fails_on(FFLUSH, fileno(file)) ? fail() : REAL(int, fflush, FILE*)(file);
}
int close(int file) {  // the file is closed all the same, as on Linux
  const int fails = fails_on(CLOSE, file), result = REAL(int, close, int)(file);
  return fails ? fail() : result;
}
int ftruncate64(int file, off64_t size) {
  return fails_on(FTRUNCATE64, file) ? fail() : REAL(int, ftruncate64, int, off64_t)(file, size);
}
int ftruncate(int file, off_t size) { return ftruncate64(file, size); }
int fallocate64(int file, int mode, off64_t offset, off64_t size) {
  return fails_on(FALLOCATE64, file) ? fail() : REAL(int, fallocate64, int, int, off64_t, off64_t)(file, mode, offset, size);
}
int fallocate(int file, int mode, off_t offset, off_t size) { return fallocate64(file, mode, offset, size); }
int posix_fallocate64(int file, off64_t offset, off64_t size) {
  return fails_on(FALLOCATE64, file) ? (int)number : REAL(int, posix_fallocate64, int, off64_t, off64_t)(file, offset, size);
}
int posix_fallocate(int file, off_t offset, off_t size) { return posix_fallocate64(file, offset, size); }
int rename(const char* from, const char* to) {
  return fails_at(RENAME, from) ? fail() : REAL(int, rename, const char*, const char*)(from, to);
}
int renameat2(int from_in, const char* from, int to_in, const char* to, unsigned flags) {
  return fails_at(RENAME, from) ? fail()
                                : REAL(int, renameat2, int, const char*, int, const char*, unsigned)(from_in, from, to_in, to, flags);
}
int remove(const char* path) { return fails_at(REMOVE, path) ? fail() : REAL(int, remove, const char*)(path); }
int unlink(const char* path) { return fails_at(REMOVE, path) ? fail() : REAL(int, unlink, const char*)(path); }
int mkdir(const char* path, mode_t mode) {
  return fails_at(MKDIR, path) ? fail() : REAL(int, mkdir, const char*, mode_t)(path, mode);
}
int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  arm(path);
  return fails_at(OPEN, path) ? fail() : REAL(int, open64, const char*, int, ...)(path, flags, mode);
}
int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open64(path, flags, mode);
}

extern void* __libc_malloc(size_t);
void* malloc(size_t bytes) {
  if (armed && large > 0 && bytes >= large && strikes(MALLOC)) {
    errno = ENOMEM;
    return NULL;
  }
  return __libc_malloc(bytes);
}
