// SPDX-License-Identifier: Apache-2.0
#include "tokens/sources.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>
#include <set>
#include <utility>

#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.hpp"
#include "files/descriptor.hpp"
#include "files/path.hpp"

#include "tokens/documents.hpp"
#include "tokens/file_kind.hpp"
#include "tokens/stored_hash.hpp"
#include "tokens/text_input.hpp"
#include "tokens/token_index.hpp"

namespace trireme::tokens {

namespace {

/// 0, or the errno value with which the path cannot be used. Throws StorageError for what is not
/// the path's fault.
int stat_error(const std::string& path, struct stat& status) {
  if (::stat(path.c_str(), &status) == 0)
    return 0;
  const int error = errno;
  files::expect_about_the_path(error, "look at " + path);
  return error;
}

/// The same for opening a file for reading.
int open_error(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    const int error = errno;
    files::expect_about_the_path(error, "open " + path);
    return error;
  }
  ::close(descriptor);
  return 0;
}

/// A dangling link, or a file that was removed between two calls.
bool leads_nowhere(int error) {
  return error == ENOENT || error == ELOOP;
}

/// Whether this is the lock of the run that searches (record/run/run_directory.hpp). A link can lead
/// to its directory, which the check of the deck cannot see.
bool is_own_lock(const std::string& path) {
  const std::string expected = fmt::format("process {} on ", ::getpid());
  std::string start(expected.size(), ' ');
  return path.ends_with("/lock") && std::ifstream(path).read(start.data(), std::ssize(start)) &&
         start == expected;
}

class Finder {
 public:
  /// Of text, or of tokens, whose files are not looked into and not searched for in directories.
  Finder(std::string key, bool text) : key_(std::move(key)), text_(text) {}

  TextSources find(const std::vector<std::string>& entries) {
    for (const std::string& entry : entries) {
      struct stat status {};
      if (entry.empty())
        report("an entry is empty");
      else if (const int error = stat_error(entry, status); error == 0)
        take(entry, status, true);
      else if (entry.find_first_of("*?[") != std::string::npos)
        expand(entry);
      else
        report("'{}': {}", entry, std::strerror(error));
    }
    found_.settle();
    return std::move(sources_);
  }

 private:
  template <class... Args>
  void report(fmt::format_string<Args...> text, Args&&... args) {
    found_.add({}, key_, fmt::format(text, std::forward<Args>(args)...));
  }

  /// Takes a path that the user gave by name or by a glob.
  void take(const std::string& path, const struct stat& status, bool named) {
    if (S_ISREG(status.st_mode)) {
      if (named && status.st_size == 0)
        report("'{}' is empty", path);
      else
        add_file(path, status, named);
    } else if (!S_ISDIR(status.st_mode)) {
      report("'{}' is neither a file nor a directory", path);
    } else if (!text_) {
      report("'{}' is a directory; give the files in it, or a glob such as '{}/*.bin'", path, path);
    } else {
      const auto noted = [&] {
        return sources_.files.size() + sources_.binary.size() + found_.size() +
               static_cast<std::size_t>(sources_.repeated);
      };
      const std::size_t before = noted();
      search(path, status);
      if (noted() == before)
        report("directory '{}' contains no text file", path);
    }
  }

  void expand(const std::string& pattern) {
    if (("/" + pattern).find("/**/") != std::string::npos)  // glob(3) would take it for /*/
      return report("'{}': ** does not match directories of any depth. {}", pattern,
                    text_ ? "Give the directory itself, which is searched recursively"
                          : "Give a glob for each depth, such as a/*.bin and a/*/*.bin");
    glob_t matches{};
    unread().clear();
    const int rc = ::glob(pattern.c_str(), GLOB_NOSORT, note_unread, &matches);
    std::vector<std::string> paths(matches.gl_pathv, matches.gl_pathv + matches.gl_pathc);
    ::globfree(&matches);
    if (rc == GLOB_NOSPACE || rc == GLOB_ABORTED)
      throw std::bad_alloc();
    for (const auto& [directory, error] : unread()) {
      files::expect_about_the_path(error, "list " + directory);
      report("directory '{}': {}", directory, std::strerror(error));
    }
    if (!unread().empty())
      return;
    if (paths.empty()) {
      report("no file matches '{}'", pattern);
      return;
    }
    std::ranges::sort(paths);
    for (const auto& path : paths) {
      struct stat status {};
      if (const int error = stat_error(path, status); error == 0)
        take(path, status, false);
      else
        leave_out(path, error);
    }
  }

  void search(const std::string& directory, const struct stat& status) {
    if (!first_time(status)) {
      ++sources_.repeated;
      return;
    }
    std::vector<std::string> names;
    std::error_code problem;
    for (std::filesystem::directory_iterator item(directory, problem), end; !problem && item != end;
         item.increment(problem))
      if (std::string name = item->path().filename().string(); name.front() != '.')
        names.push_back(std::move(name));
    if (problem) {
      files::expect_about_the_path(problem.value(), "list " + directory);
      return report("directory '{}': {}", directory, std::strerror(problem.value()));
    }
    std::ranges::sort(names);
    const std::string prefix = directory.ends_with('/') ? directory : directory + "/";
    for (const auto& name : names) {
      const std::string path = prefix + name;
      struct stat inner {};
      if (const int error = stat_error(path, inner); error != 0)
        leave_out(path, error);
      else if (!(S_ISREG(inner.st_mode) || S_ISDIR(inner.st_mode)))
        ++sources_.left_out;
      else if (S_ISDIR(inner.st_mode))
        search(path, inner);
      else if (inner.st_size > 0)
        add_file(path, inner, false);
    }
  }

  void add_file(const std::string& path, const struct stat& status, bool named) {
    if (!first_time(status)) {
      ++sources_.repeated;
      if (named && !text_)
        report("'{}' is given twice, but is read once. Remove one of the entries", path);
    } else if (const int error = open_error(path)) {
      report("'{}': {}", path, std::strerror(error));
    } else if (text_ && is_own_lock(path)) {
      report("'{}' belongs to this run, whose files would be read as text. Move one of them", path);
    } else {
      TextFile file{.path = path, .size = std::int64_t{status.st_size}};
      if (text_ && !is_text(file, named))
        sources_.binary.push_back(std::move(file));
      else
        sources_.files.push_back(std::move(file));
    }
  }

  /// By its front, decompressed where it is compressed.
  bool is_text(TextFile& file, bool named) {
    try {
      file.compressed = packing_of(file.path) != Packing::none;
      const std::string front = open_text(file.path)->read_front(document_front);
      if (const FileKind* const kind = kind_of(front)) {
        report("'{}' {} {}, not text. {}", file.path, file.compressed ? "contains" : "is",
               kind->name, kind->in_text.empty() ? "It is compressed twice." : kind->in_text);
        return false;
      }
      if (!is_binary(front))
        return true;
    } catch (const UserError& damage) {
      for (const Diagnostic& one : damage.findings()) found_.add(one);
      return false;
    }
    if (named)
      sources_.binary_but_named.push_back(file.path);
    return named;
  }

  void leave_out(const std::string& path, int error) {
    if (leads_nowhere(error))
      ++sources_.left_out;
    else
      report("'{}': {}", path, std::strerror(error));
  }

  /// Directories that the last glob() could not list, and why.
  static std::vector<std::pair<std::string, int>>& unread() {
    static thread_local std::vector<std::pair<std::string, int>> found;
    return found;
  }
  /// glob()'s callback: no exception may pass through it, and glob() continues after a 0.
  static int note_unread(const char* directory, int error) {
    try {
      if (!leads_nowhere(error))
        unread().emplace_back(directory, error);
      return 0;
    } catch (...) {
      return 1;
    }
  }

  bool first_time(const struct stat& status) {
    return seen_.emplace(status.st_dev, status.st_ino).second;
  }

  const std::string key_;
  const bool text_;
  TextSources sources_;
  std::set<std::pair<dev_t, ino_t>> seen_;
  Findings found_;
};

}  // namespace

std::uint64_t TextSources::fingerprint() const {
  constexpr std::int64_t most = 64 << 10;
  std::vector<std::byte> bytes(most);
  StoredHash hash;
  for (const TextFile& file : files) {
    const FileIdentity identity = identity_of(file.path);
    hash.add(std::filesystem::absolute(file.path).string())
        .add(static_cast<std::uint64_t>(file.size))
        .add(static_cast<std::uint64_t>(identity.modified_ns))
        .add(static_cast<std::uint64_t>(identity.changed_ns));
    const files::InputFile text(file.path);
    for (const std::int64_t begin :
         {std::int64_t{0}, std::max<std::int64_t>(most, file.size - most)})
      hash.add(std::span(bytes).first(text.read_some(begin, bytes)));
  }
  return hash.value();
}

TextSources find_text(const std::vector<std::string>& entries, const std::string& key) {
  return Finder(key, true).find(entries);
}

void report_sources(const TextSources& sources,
                    const std::string& field,
                    const std::string& key,
                    Log& log) {
  const auto say = [&](std::int64_t count, const char* one, const char* several) {
    if (count > 0)
      log.info("{}: skipped {} {}", key, count, count == 1 ? one : several);
  };
  say(std::ssize(sources.binary), "binary file", "binary files");
  say(sources.repeated, "file or directory that was found before",
      "files or directories that were found before");
  say(sources.left_out, "dangling link or special file", "dangling links or special files");
  std::int64_t all = 0;
  for (const auto* files : {&sources.files, &sources.binary})
    for (const TextFile& file : *files) all += file.size;
  for (const TextFile& file : sources.binary)
    if (100 * file.size > all)
      log.warning(
          "{}: skipped {}, which holds {:.0f} % of the bytes, because it is not text: more than 1 "
          "% of its beginning are control characters. Remove it, or give it by its own name to "
          "read it anyway",
          key, file.path, 100 * static_cast<double>(file.size) / static_cast<double>(all));
  for (const std::string& path : sources.binary_but_named)
    log.warning(
        "{}: {} is read as text because it is given by its own name, although more than 1 % of its "
        "beginning are control characters",
        key, path);
  const auto json_lines = std::ranges::find_if(sources.files, [](const TextFile& file) {
    const std::filesystem::path path = file.path;
    const auto holds_lines = [](const std::filesystem::path& ending) {
      return ending == ".jsonl" || ending == ".ndjson";
    };
    return holds_lines(path.extension()) ||
           (file.compressed && holds_lines(path.stem().extension()));
  });
  if (field.empty() && json_lines != sources.files.end())
    log.warning(
        "{}: {} is read as plain text, JSON syntax included. To read the text of each line, give "
        "the key under which it is: --field, or `field` in the deck",
        key, json_lines->path);
}

std::vector<std::string> find_shards(const std::vector<std::string>& entries,
                                     const std::string& key) {
  std::vector<std::string> paths;
  for (TextFile& file : Finder(key, false).find(entries).files)
    paths.push_back(std::move(file.path));
  return paths;
}

std::string find_file(const std::string& entry, const std::string& key) {
  const std::vector<std::string> found = find_shards({entry}, key);
  if (found.size() > 1)
    throw UserError({{{},
                      key,
                      fmt::format("{} files match '{}', such as {} and {}. Name one of them",
                                  found.size(), entry, found[0], found[1])}});
  return found.front();
}

}  // namespace trireme::tokens
