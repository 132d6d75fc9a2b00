// SPDX-License-Identifier: Apache-2.0
#include "h5/journal.hpp"

#include <cerrno>
#include <filesystem>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.hpp"

#include "h5/attribute.hpp"
#include "h5/file.hpp"

#include "support/scratch_directory.hpp"

namespace trireme::h5 {
namespace {

using test::bytes_of;
using test::write_bytes;

/// An open file.
struct Opened {
  Opened(const std::string& path, int flags) : number(::open(path.c_str(), flags | O_CLOEXEC)) {}
  ~Opened() { ::close(number); }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  const int number;
};

Page page_of(char value) {
  Page page;
  page.fill(static_cast<std::byte>(value));
  return page;
}

const std::string old_bytes = std::string(3 * page_size, 'a') + "tail";
const std::string new_bytes = std::string(page_size, 'b') + std::string(page_size, 'a') +
                              std::string(page_size, 'c') + std::string(100, 'd');
const Pages pages = {{0, page_of('b')}, {2, page_of('c')}, {3, page_of('d')}};

/// Leaves a journal beside `path` as a process does that dies before it touches the file.
void leave_journal(const std::string& path) {
  Journal journal(path);
  const Opened file(path, O_RDONLY);
  EXPECT_EQ(journal.replace(file.number, pages, std::ssize(new_bytes)), EBADF);
}

TEST(Journal, ReplacesPagesAndLeavesNothing) {
  const test::ScratchDirectory scratch;
  const std::string path = scratch / "a";
  write_bytes(path, old_bytes);
  {
    Journal journal(path);
    const Opened file(path, O_RDWR);
    EXPECT_EQ(journal.replace(file.number, pages, std::ssize(new_bytes)), 0);
    EXPECT_EQ(bytes_of(path), new_bytes);
    EXPECT_EQ(journal.replace(file.number, {{1, page_of('x')}}, 2 * page_size), 0);
    journal.settle(file.number);
  }
  EXPECT_EQ(bytes_of(path), std::string(page_size, 'b') + std::string(page_size, 'x'));
  EXPECT_FALSE(std::filesystem::exists(journal_of(path)));
}

TEST(Journal, IsFinishedByTheNextOneWhereverItWasInterrupted) {
  const test::ScratchDirectory scratch;
  const std::string path = scratch / "a";
  for (const std::size_t done : {std::size_t{0}, std::size_t{1}, page_size, 2 * page_size + 77}) {
    write_bytes(path, old_bytes);
    leave_journal(path);
    EXPECT_EQ(bytes_of(path), old_bytes);
    write_bytes(path, new_bytes.substr(0, done) + old_bytes.substr(done));
    {
      Journal journal(path);
      const Opened file(path, O_RDWR);
      EXPECT_EQ(journal.finish(file.number), 0);
      EXPECT_EQ(bytes_of(path), new_bytes) << done;
      journal.settle(file.number);
    }
    EXPECT_EQ(bytes_of(path), new_bytes) << done;
    EXPECT_FALSE(std::filesystem::exists(journal_of(path)));
  }
}

TEST(Journal, MeansNothingWhenItIsNotWholeOrOfAnotherFile) {
  const test::ScratchDirectory scratch;
  const std::string path = scratch / "a";
  const auto finish = [&] {
    Journal journal(path);
    const Opened file(path, O_RDWR);
    EXPECT_EQ(journal.finish(file.number), 0);
    return bytes_of(path);
  };
  write_bytes(path, old_bytes);
  leave_journal(path);
  const std::string whole = bytes_of(journal_of(path));
  for (const std::size_t size : {std::size_t{0}, std::size_t{20}, whole.size() - 1}) {
    write_bytes(journal_of(path), whole.substr(0, size));
    EXPECT_EQ(finish(), old_bytes) << size;
  }
  for (const std::size_t at : {std::size_t{3}, std::size_t{9}, std::size_t{25}, whole.size() / 2}) {
    std::string flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ 1);
    write_bytes(journal_of(path), flipped);
    EXPECT_EQ(finish(), old_bytes) << at;
  }
  write_bytes(journal_of(path), whole);
  const std::string other = std::string(3 * page_size, 'x');
  write_bytes(path, other);
  EXPECT_EQ(finish(), other);
}

TEST(Journal, WhatCannotBeWrittenLeavesTheFileAlone) {
  const test::ScratchDirectory scratch;
  const std::string path = scratch / "a";
  write_bytes(path, old_bytes);
  std::filesystem::create_directory(journal_of(path));
  Journal journal(path);
  const Opened file(path, O_RDWR);
  EXPECT_EQ(journal.replace(file.number, pages, std::ssize(new_bytes)), EISDIR);
  EXPECT_EQ(bytes_of(path), old_bytes);
}

TEST(JournaledFile, NamesTheJournalThatCannotBeWritten) {
  const test::ScratchDirectory scratch;
  const std::string path = scratch / "a.h5";
  {
    const File file = create_file(path, Writes::journaled);
    write_attribute(file.get(), "answer", std::int64_t{1});
  }
  File file = open_file(path, Access::read_write, Writes::journaled);
  std::filesystem::create_directory(journal_of(path));
  write_attribute(file.get(), "answer", std::int64_t{2});
  std::string told;
  try {
    flush(file);
  } catch (const StorageError& error) {
    told = error.what();
  }
  EXPECT_NE(told.find("Is a directory: " + journal_of(path)), std::string::npos) << told;
  abandon(std::move(file));
  std::string why;
  EXPECT_EQ(probe(path, &why, Writes::journaled), Probe::unreadable);
  EXPECT_NE(why.find("Is a directory: " + journal_of(path)), std::string::npos) << why;
  std::filesystem::remove(journal_of(path));
  const File again = open_file(path, Access::read, Writes::journaled);
  EXPECT_EQ(read_attribute<std::int64_t>(again.get(), "answer"), 1);
}

TEST(JournaledFile, ChangesAsAWholeAndShowsWhatItsJournalHolds) {
  const test::ScratchDirectory scratch;
  const std::string path = scratch / "a.h5";
  const auto answer = [&](Access access) {
    return read_attribute<std::int64_t>(open_file(path, access, Writes::journaled).get(), "answer");
  };
  {
    const File file = create_file(path, Writes::journaled);
    write_attribute(file.get(), "answer", std::int64_t{1});
  }
  const std::string before = bytes_of(path);
  {
    File file = open_file(path, Access::read_write, Writes::journaled);
    write_attribute(file.get(), "answer", std::int64_t{2});
    EXPECT_EQ(bytes_of(path).substr(0, before.size()), before) << "it changes when it is flushed";
    flush(file);
    EXPECT_EQ(answer(Access::read), 2);
    write_attribute(file.get(), "answer", std::int64_t{3});
    abandon(std::move(file));
  }
  const std::string after = bytes_of(path);
  EXPECT_EQ(answer(Access::read), 2);
  // Interrupted in the middle: half of the file is the new one.
  Pages changed;
  for (std::size_t at = 0; at < after.size(); at += page_size) {
    Page page{};
    after.copy(reinterpret_cast<char*>(page.data()), page_size, at);
    changed.emplace(static_cast<std::int64_t>(at / page_size), page);
  }
  write_bytes(path, before);
  {
    Journal journal(path);
    const Opened file(path, O_RDONLY);
    EXPECT_EQ(journal.replace(file.number, changed, std::ssize(after)), EBADF);
  }
  EXPECT_EQ(answer(Access::read), 2);
  EXPECT_EQ(bytes_of(path), before) << "reading changes nothing";
  EXPECT_EQ(answer(Access::read_write), 2);
  EXPECT_EQ(bytes_of(path), after);
  EXPECT_FALSE(std::filesystem::exists(journal_of(path)));
}

}  // namespace
}  // namespace trireme::h5
