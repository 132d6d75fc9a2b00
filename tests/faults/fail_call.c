// SPDX-License-Identifier: Apache-2.0
// A preloaded library that makes system calls fail, for tests/faults/mutate.py, which compiles it.
//
//   FAIL_CALL    write, pwrite64, read, pread64, fsync, ftruncate64, fallocate64, open, rename, mkdir or malloc
//   FAIL_AT      the call that fails, counted from 1 over all calls of that name below FAIL_UNDER; 0: none, they are counted
//   FAIL_FOR     how many calls fail from there on (default 1; 0: all)
//   FAIL_ERRNO   the number that errno gets; -1: a short write or read, of half of what was asked for
//   FAIL_UNDER   calls about paths below this directory count, and no others; malloc: bytes that a call must ask for to count
//   FAIL_LIMIT   NUMBER:VALUE: a resource limit; that of RLIMIT_AS is what may be added to what the process has
//   FAIL_RUN     a directory: allocations fail and limits hold from the first file on that is opened below it
//   FAIL_REPORT  a file that gets the number of calls at the end
//
// Only a program whose name begins with "trireme" is disturbed: the daemons that MPI starts inherit the library.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *name, *under, *report, *run;
static long at, lasts = 1, number, calls;
static int armed;
static size_t large;

__attribute__((constructor)) static void begin(void) {
  const char* text;
  if (strncmp(program_invocation_short_name, "trireme", 7) != 0)
    return;
  run = getenv("FAIL_RUN");
  under = getenv("FAIL_UNDER");
  report = getenv("FAIL_REPORT");
  at = (text = getenv("FAIL_AT")) ? atol(text) : 0;
  lasts = (text = getenv("FAIL_FOR")) ? atol(text) : 1;
  number = (text = getenv("FAIL_ERRNO")) ? atol(text) : EIO;
  large = under ? strtoul(under, NULL, 10) : 0;
  name = getenv("FAIL_CALL");
}

__attribute__((destructor)) static void end(void) {
  const char* path = report;
  name = NULL;
  if (path) {
    FILE* out = fopen(path, "w");
    if (out) {
      fprintf(out, "%ld\n", calls);
      fclose(out);
    }
  }
}

/// Whether this call fails.
static int strikes(void) {
  const long now = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
  return at > 0 && now >= at && (lasts == 0 || now < at + lasts);
}

static int fails_at(const char* call, const char* path) {
  return name && under && strcmp(name, call) == 0 && strncmp(path, under, strlen(under)) == 0 && strikes();
}

static int fails_on(const char* call, int file) {
  char link[64], path[4096];
  if (!name || strcmp(name, call) != 0)
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

#define REAL(result, call, ...) ((result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #call))

#define MOVES_BYTES(label)                         \
  if (fails_on(label, file)) {                     \
    if (number >= 0)                               \
      return fail();                               \
    count = count > 1 ? count / 2 : count;         \
  }

ssize_t write(int file, const void* data, size_t count) {
  MOVES_BYTES("write")
  return REAL(ssize_t, write, int, const void*, size_t)(file, data, count);
}
ssize_t read(int file, void* data, size_t count) {
  MOVES_BYTES("read")
  return REAL(ssize_t, read, int, void*, size_t)(file, data, count);
}
ssize_t pwrite64(int file, const void* data, size_t count, off64_t offset) {
  MOVES_BYTES("pwrite64")
  return REAL(ssize_t, pwrite64, int, const void*, size_t, off64_t)(file, data, count, offset);
}
ssize_t pread64(int file, void* data, size_t count, off64_t offset) {
  MOVES_BYTES("pread64")
  return REAL(ssize_t, pread64, int, void*, size_t, off64_t)(file, data, count, offset);
}
ssize_t pwrite(int file, const void* data, size_t count, off_t offset) { return pwrite64(file, data, count, offset); }
ssize_t pread(int file, void* data, size_t count, off_t offset) { return pread64(file, data, count, offset); }
int fsync(int file) { return fails_on("fsync", file) ? fail() : REAL(int, fsync, int)(file); }
int ftruncate64(int file, off64_t size) {
  return fails_on("ftruncate64", file) ? fail() : REAL(int, ftruncate64, int, off64_t)(file, size);
}
int ftruncate(int file, off_t size) { return ftruncate64(file, size); }
int fallocate64(int file, int mode, off64_t offset, off64_t size) {
  return fails_on("fallocate64", file) ? fail() : REAL(int, fallocate64, int, int, off64_t, off64_t)(file, mode, offset, size);
}
int fallocate(int file, int mode, off_t offset, off_t size) { return fallocate64(file, mode, offset, size); }
int rename(const char* from, const char* to) {
  return fails_at("rename", from) ? fail() : REAL(int, rename, const char*, const char*)(from, to);
}
int mkdir(const char* path, mode_t mode) {
  return fails_at("mkdir", path) ? fail() : REAL(int, mkdir, const char*, mode_t)(path, mode);
}
int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  arm(path);
  return fails_at("open", path) ? fail() : REAL(int, open64, const char*, int, ...)(path, flags, mode);
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
  if (armed && name && bytes >= large && large > 0 && name[0] == 'm' && strcmp(name, "malloc") == 0 && strikes()) {
    errno = ENOMEM;
    return NULL;
  }
  return __libc_malloc(bytes);
}
