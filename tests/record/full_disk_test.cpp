// SPDX-License-Identifier: Apache-2.0
// The record when writing fails, or the process dies, at any call that writes: rows that waited are
// lost, the file never is; and when a read fails. HDF5 and the record call the functions below.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.hpp"

#include "h5/dataset.hpp"
#include "h5/file.hpp"
#include "h5/journal.hpp"
#include "record/also/also_files.hpp"
#include "record/run/run_file.hpp"
#include "record/run/run_writer.hpp"

#include "support/scratch_directory.hpp"

namespace {

enum class Fate { none, full, dies, unreadable, copies_full };
Fate fate = Fate::none;
std::atomic<int> left = 0;  ///< calls until it strikes

/// Whether this call is refused: the disk is full from the last allowed call on.
bool refused() {
  if (fate == Fate::none || fate == Fate::unreadable || fate == Fate::copies_full ||
      left.fetch_sub(1) > 0)
    return false;
  if (fate == Fate::dies)
    ::_exit(9);
  errno = ENOSPC;
  return true;
}

/// Whether the file is a copy of the record.
bool is_copy(int file) {
  char name[4096] = {};
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  return ::readlink(link.c_str(), name, sizeof name - 1) > 0 &&
         std::string(name).find(".jsonl") != std::string::npos;
}

template <class Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" ssize_t pwrite(int file, const void* data, size_t count, off_t offset) {
  if (fate == Fate::copies_full && is_copy(file)) {  // after a part of a row
    if (left.fetch_sub(1) > 0)
      return real<decltype(pwrite)>("pwrite")(file, data, std::min<size_t>(count, 10), offset);
    errno = ENOSPC;
    return -1;
  }
  return refused() ? -1 : real<decltype(pwrite)>("pwrite")(file, data, count, offset);
}
extern "C" ssize_t pread(int file, void* data, size_t count, off_t offset) {
  if (fate == Fate::unreadable && left.fetch_sub(1) == 0) {
    errno = EIO;
    return -1;
  }
  return real<decltype(pread)>("pread")(file, data, count, offset);
}
extern "C" int ftruncate(int file, off_t size) noexcept {
  return refused() ? -1 : real<decltype(ftruncate)>("ftruncate")(file, size);
}

namespace trireme::record {
namespace {

const RunHeader disk_header{.facts = {{"run_id", "0123456789abcdef"}},
                            .deck = {{"run.name", "tiny"}},
                            .hosts = {"node1"},
                            .buckets = {{"b", "a", 96, 2, 32}}};

std::vector<std::int64_t> steps_in(const std::string& path) {
  const h5::File file = h5::open_file(path, h5::Access::read, h5::Writes::journaled);
  return h5::Dataset::open(file.get(), "steps/step").read_all<std::int64_t>();
}

void add_steps(RunFile& file, std::int64_t first, std::int64_t last) {
  for (std::int64_t step = first; step <= last; ++step) {
    file.append(StepRow{.step = step, .loss = 5});
    file.append_samples(std::vector<device::TimeSample>(300));
  }
  file.append_validation({last, 4});
  file.append_checkpoint({.step = last, .bytes = 10, .copy_s = 0, .stall_s = 0, .write_s = 0});
}

/// A record of 20 steps.
std::string make_steps(const test::ScratchDirectory& scratch) {
  const std::string path = scratch / "run.h5";
  RunFile file = RunFile::create(path, disk_header, {.flush_share = 1e9});
  add_steps(file, 1, 20);
  file.close();
  return path;
}

/// A resume after step 12 that records up to step 30.
void go_on(const std::string& path) {
  RunFile file = RunFile::resume(path, disk_header, 12, {.flush_share = 1e9});
  add_steps(file, 13, 30);
  file.close();
}

std::vector<std::int64_t> up_to(std::int64_t last) {
  std::vector<std::int64_t> steps(static_cast<std::size_t>(last));
  std::iota(steps.begin(), steps.end(), 1);
  return steps;
}

void expect_whole(const std::string& path, int k) {
  EXPECT_EQ(RunFile::damage(path), "") << "call " << k;
  RunFile::finish_journal(path);
  EXPECT_EQ(h5::probe(path), h5::Probe::whole) << "for other readers, call " << k;
  EXPECT_FALSE(std::filesystem::exists(h5::journal_of(path))) << "call " << k;
  const auto steps = steps_in(path);
  ASSERT_GE(steps.size(), 12U) << "call " << k;
  EXPECT_EQ(steps, up_to(std::ssize(steps))) << "call " << k;
  ASSERT_NO_THROW(go_on(path)) << "call " << k;
  EXPECT_EQ(steps_in(path), up_to(30)) << "call " << k;
  EXPECT_FALSE(std::filesystem::exists(h5::journal_of(path))) << "call " << k;
}

TEST(RecordOfAFullDisk, LacksRowsAndIsWholeAtWhateverWrite) {
  const test::ScratchDirectory scratch;
  const std::string path = make_steps(scratch), whole = test::bytes_of(path);
  int calls = 0;
  for (bool told = true; told; ++calls) {
    test::write_bytes(path, whole);
    left = calls;
    fate = Fate::full;
    told = false;
    try {
      go_on(path);
    } catch (const StorageError& error) {
      EXPECT_NE(std::string(error.what()).find("No space left"), std::string::npos) << error.what();
      told = true;
    }
    fate = Fate::none;
    expect_whole(path, calls);
  }
  EXPECT_GT(calls, 10) << "the calls that write are seen here";
}

TEST(RecordOfAFullDisk, IsWholeAfterKill9AtWhateverWriteToo) {
  const test::ScratchDirectory scratch;
  const std::string path = make_steps(scratch), whole = test::bytes_of(path);
  int code = 9, calls = 0;
  for (; code == 9; ++calls) {
    test::write_bytes(path, whole);
    const pid_t child = ::fork();
    if (child == 0) {
      left = calls;
      fate = Fate::dies;
      go_on(path);
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    code = WEXITSTATUS(status);
    expect_whole(path, calls);
  }
  EXPECT_EQ(code, 0);
  EXPECT_GT(calls, 10) << "the calls that write are seen here";
}

/// Asks for damage while the k-th read fails, for every k; how many reads there are.
int ask_for_damage(const std::string& path) {
  for (int calls = 0;; ++calls) {
    left = calls;
    fate = Fate::unreadable;
    try {
      EXPECT_EQ(RunFile::damage(path), "") << "call " << calls;
    } catch (const StorageError&) {
    }
    fate = Fate::none;
    if (left >= 0)
      return calls;
  }
}

TEST(RecordOfADiskThatCannotBeRead, IsNotCalledDamagedWhateverReadFails) {
  const test::ScratchDirectory scratch;
  const std::string path = make_steps(scratch);
  // HDF5 1.10.8 leaks what it was about to read into; that goes with a process of its own.
  const pid_t child = ::fork();
  if (child == 0) {
    EXPECT_GT(ask_for_damage(path), 100) << "the calls that read are seen here";
    std::fflush(stdout);
    ::_exit(HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

/// The disk fills while a copy of the rows is written, and has room for run.h5 all the same.
TEST(FullDisk, OfACopyCostsTheRecordNothingAndIsReportedAtTheNextRow) {
  const test::ScratchDirectory scratch;
  const std::string path = scratch / "run.h5", copy = scratch / "steps.jsonl";
  std::vector<std::string> warnings;
  RunFile file = RunFile::create(path, disk_header);
  file.also(std::make_unique<AlsoFiles>(scratch.path(), file.rows(), 1, warnings));
  std::string whole;
  {
    RunWriter writer(std::move(file));
    const auto add = [&](std::int64_t step) {
      writer.write([step](RunFile& record) { record.append(StepRow{.step = step}); });
    };
    for (std::int64_t step = 1; step <= 20; ++step) add(step);
    writer.flush();
    whole = test::bytes_of(copy);
    left = 1;
    fate = Fate::copies_full;
    add(21);
    std::string said;
    try {
      writer.flush();
    } catch (const StorageError& problem) {
      said = problem.what();
    }
    EXPECT_NE(said.find("steps.jsonl"), std::string::npos) << said;
    EXPECT_NE(said.find("No space left"), std::string::npos) << said;
    fate = Fate::none;  // room again: a copy with a gap is not continued
    writer.write([](RunFile&) {});
    writer.settled();  // the writer's thread has seen it by now
    EXPECT_THROW(add(22), StorageError);
    EXPECT_THROW(writer.close(), StorageError);
  }
  std::vector<std::int64_t> all(22);
  std::iota(all.begin(), all.end(), 1);
  EXPECT_EQ(steps_in(path), all);  // that of the call that threw, too
  EXPECT_EQ(test::bytes_of(copy), whole);
}

}  // namespace
}  // namespace trireme::record
