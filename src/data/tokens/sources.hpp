// SPDX-License-Identifier: Apache-2.0
// Finds the files that the entries of `text` and `tokens` name, in the deck and on the command
// line. `key` is the name of the entries in findings.
//
// An entry is a path when one exists under that name, else a glob (glob(3), so `*` does not match
// hidden names). Text entries may be directories, which are searched in depth.
//
// 1. Entries are used in the deck's order, and the files of an entry are sorted by the bytes of
//    their names, directory by directory. The order does not depend on the file system or the
//    locale.
// 2. A file is used once, at its first place, whatever names and links lead to it, so links cannot
//    form a loop. Further places are counted as repeated.
// 3. In directories, hidden names, dangling links, sockets and devices are left out (and counted,
//    except for hidden names). A file that cannot be read is an error and is never left out.
// 4. The first bytes of a file decide what it is (file_kind.hpp), not its name. A format that
//    cannot be read is an error with its remedy, and binary data that no entry names are skipped.
// 5. A failure of the machine (memory, open files, a disk) is a StorageError, not a mistake of the
//    user (files/path.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "base/log.hpp"

namespace trireme::tokens {

struct TextFile {
  std::string path;
  std::int64_t size = 0;  ///< bytes
  bool compressed = false;

  auto fields() { return std::tie(path, size, compressed); }
};

struct TextSources {
  std::vector<TextFile> files;
  std::int64_t repeated = 0;
  std::int64_t left_out = 0;                  ///< dangling links, sockets and the like
  std::vector<TextFile> binary;               ///< skipped
  std::vector<std::string> binary_but_named;  ///< named, so read as text, although they are binary

  /// Changes when a file comes, goes, is written to or changes place. Reads both ends of every
  /// file, because in some file systems and images all times are equal.
  [[nodiscard]] std::uint64_t fingerprint() const;
};

/// Throws UserError with every finding: paths that do not exist, cannot be read or are neither file
/// nor directory, named files that are empty, directories and globs without a file.
TextSources find_text(const std::vector<std::string>& entries,
                      const std::string& key = "data.train.text");

/// Says what was left out, with a warning for each binary file that holds more than 1 % of the
/// bytes or is read because it was named. Without `field`, the key of the text in JSON lines, also
/// warns of files whose names say that they are JSON lines.
void report_sources(const TextSources& sources,
                    const std::string& field,
                    const std::string& key,
                    Log& log);

/// Files and globs only. Throws UserError as find_text() does.
std::vector<std::string> find_shards(const std::vector<std::string>& entries,
                                     const std::string& key = "data.train.tokens");

/// The same for one file. Throws UserError where a glob matches several.
std::string find_file(const std::string& entry, const std::string& key);

}  // namespace trireme::tokens
