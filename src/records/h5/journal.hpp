// SPDX-License-Identifier: Apache-2.0
// Pages that are to replace pages of a file, all of them or none. What replaces them is written
// beside the file first (`PATH.journal`); only then the file is touched. Whoever finds the journal
// finishes what was begun.
//
//   header   magic, pages, size of the file afterwards, XXH64 of the header and all that follows
//   per page its number, the bytes that it replaces, the bytes that replace them
//
// 1. A journal that is not whole means nothing: the file was not touched yet.
// 2. It is used only where every byte of the file at its places is the old or the new one. Else a
//    power cut kept more of one file than of the other, or it is another file.
// 3. It survives a power cut: the file is synced before a journal replaces the last one, and the
//    journal before the file is touched. So a journal stays valid until the next use, and finishing
//    it once more changes nothing.
// 4. The journal keeps its room on the disk from one use to the next, and goes with the last owner.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace trireme::h5 {

inline constexpr std::size_t page_size = 4096;
using Page = std::array<std::byte, page_size>;
/// By their number: page n begins at byte n * page_size.
using Pages = std::map<std::int64_t, Page>;

/// "PATH.journal".
std::string journal_of(const std::string& path);

/// errno values are what these functions return: 0 when all is well.
class Journal {
 public:
  explicit Journal(const std::string& path) : path_(journal_of(path)) {}
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  /// `file` is open for reading and writing. Replaces the pages and gives it the size `end`. When
  /// this fails, the file is as it was or the journal is whole and stays, and nothing more may be
  /// done with this object.
  int replace(int file, const Pages& pages, std::int64_t end);

  /// Removes the journal, once the file is on the disk; leaves it where it must still be applied.
  void settle(int file) noexcept;

  /// After a replace() that failed: whether that was at the file, and not at the journal before it.
  [[nodiscard]] bool whole() const { return whole_; }

  /// What is left to be done of an earlier replace(); no page and the size of the file where there
  /// is nothing. Changes nothing.
  struct Left {
    Pages pages;
    std::int64_t end = 0;
    bool valid = false;
  };
  int read(int file, Left& left) const;
  /// Does that, with `file` open for reading and writing.
  int finish(int file);

 private:
  int open();

  std::string path_;
  int descriptor_ = -1;
  bool whole_ = false;  ///< it must still be applied
};

/// All of `count` bytes at `offset`; errno or 0. read_all() gives zeros after the end of the file.
int write_all(int file, const void* from, std::size_t count, std::int64_t offset);
int read_all(int file, void* to, std::size_t count, std::int64_t offset);
/// fdatasync; 0 on a file system without it.
int sync_data(int file);

}  // namespace trireme::h5
