// SPDX-License-Identifier: Apache-2.0
#include "tokens/sources.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <new>
#include <set>
#include <utility>

#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.hpp"
#include "files/input_file.hpp"
#include "files/path.hpp"

#include "tokens/documents.hpp"
#include "tokens/file_kind.hpp"
#include "tokens/stored_hash.hpp"
#include "tokens/text_input.hpp"

namespace trireme::tokens {

namespace {

constexpr std::size_t most_findings = 20;

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

/// A link whose end is not there, or a file that went away between two looks.
bool leads_nowhere(int error) {
  return error == ENOENT || error == ELOOP;
}

std::int64_t nanoseconds(const timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + std::int64_t{time.tv_nsec};
}

bool is_pattern(const std::string& entry) {
  return entry.find_first_of("*?[") != std::string::npos;
}

class Finder {
 public:
  explicit Finder(std::string key) : key_(std::move(key)) {}

  void find(const std::vector<std::string>& entries, bool directories) {
    text_ = directories;
    for (entry_ = 0; entry_ < entries.size(); ++entry_) {
      const std::string& entry = entries[entry_];
      struct stat status {};
      if (entry.empty())
        report("an entry is empty");
      else if (const int error = stat_error(entry, status); error == 0)
        take(entry, status, directories, true);
      else if (is_pattern(entry))
        expand(entry, directories);
      else
        report("'{}': {}", entry, std::strerror(error));
    }
    if (found_.size() > most_findings) {
      const auto more = found_.size() - most_findings;
      found_.resize(most_findings);
      report("and {} more", more);
    }
    if (!found_.empty())
      throw UserError(std::move(found_));
  }

  TextSources sources;

 private:
  template <class... Args>
  void report(fmt::format_string<Args...> text, Args&&... args) {
    found_.push_back({{}, key_, fmt::format(text, std::forward<Args>(args)...)});
  }

  /// What the user pointed at, by name or by a glob.
  void take(const std::string& path, const struct stat& status, bool directories, bool named) {
    if (S_ISREG(status.st_mode)) {
      if (named && status.st_size == 0)
        report("'{}' is empty", path);
      else
        add_file(path, status, named);
    } else if (!S_ISDIR(status.st_mode)) {
      report("'{}' is neither a file nor a directory", path);
    } else if (!directories) {
      report("'{}' is a directory; give the files in it, or a glob such as '{}/*.bin'", path, path);
    } else {
      const auto before = sources.files.size() + sources.binary.size();
      const auto findings = found_.size(), repeated = static_cast<std::size_t>(sources.repeated);
      search(path, status);
      if (sources.files.size() + sources.binary.size() == before && found_.size() == findings &&
          static_cast<std::size_t>(sources.repeated) == repeated)
        report("directory '{}' contains no text file", path);
    }
  }

  void expand(const std::string& pattern, bool directories) {
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
        take(path, status, directories, false);
      else
        leave_out(path, error);
    }
  }

  void search(const std::string& directory, const struct stat& status) {
    if (!first_time(status)) {
      ++sources.repeated;
      return;
    }
    DIR* listing = ::opendir(directory.c_str());
    if (listing == nullptr) {
      const int error = errno;
      files::expect_about_the_path(error, "list " + directory);
      report("directory '{}': {}", directory, std::strerror(error));
      return;
    }
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* item = ::readdir(listing)) {
      if (item->d_name[0] != '.')
        names.emplace_back(item->d_name);
      errno = 0;
    }
    const int problem = errno;
    ::closedir(listing);
    if (problem != 0)  // else the rest of the directory would be missing without a word
      throw StorageError("file system", "list " + directory, std::strerror(problem), __FILE__,
                         __LINE__);
    std::ranges::sort(names);
    const std::string prefix = directory.ends_with('/') ? directory : directory + "/";
    for (const auto& name : names) {
      const std::string path = prefix + name;
      struct stat inner {};
      if (const int error = stat_error(path, inner); error != 0)
        leave_out(path, error);
      else if (!(S_ISREG(inner.st_mode) || S_ISDIR(inner.st_mode)))
        ++sources.left_out;
      else if (S_ISDIR(inner.st_mode))
        search(path, inner);
      else if (inner.st_size > 0)
        add_file(path, inner, false);
    }
  }

  void add_file(const std::string& path, const struct stat& status, bool named) {
    if (!first_time(status)) {
      ++sources.repeated;
    } else if (const int error = open_error(path)) {
      report("'{}': {}", path, std::strerror(error));
    } else {
      TextFile file{.path = path,
                    .size = std::int64_t{status.st_size},
                    .modified_ns = nanoseconds(status.st_mtim),
                    .changed_ns = nanoseconds(status.st_ctim),
                    .entry = entry_};
      if (text_ && !is_text(file, named))
        sources.binary.push_back(std::move(file));
      else
        sources.files.push_back(std::move(file));
    }
  }

  /// By its front, decompressed where it is compressed.
  bool is_text(TextFile& file, bool named) {
    try {
      file.compressed = packing_of(file.path) != Packing::none;
      const std::string front = TextInput(file.path).read_front(document_front);
      if (const FileKind* const kind = kind_of(front)) {
        report("'{}' {} {}, not text. {}", file.path, file.compressed ? "contains" : "is",
               kind->name, kind->in_text.empty() ? "It is compressed twice." : kind->in_text);
        return false;
      }
      if (!is_binary(front))
        return true;
    } catch (const UserError& damage) {
      for (const Diagnostic& one : damage.findings()) found_.push_back(one);
      return false;
    }
    if (named)
      sources.odd.push_back(file.path);
    return named;
  }

  void leave_out(const std::string& path, int error) {
    if (leads_nowhere(error))
      ++sources.left_out;
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
  bool text_ = false;
  std::size_t entry_ = 0;
  std::set<std::pair<dev_t, ino_t>> seen_;
  std::vector<Diagnostic> found_;
};

}  // namespace

std::uint64_t TextSources::fingerprint() const {
  constexpr std::int64_t most = 64 << 10;
  std::vector<std::byte> bytes(most);
  StoredHash hash;
  for (const TextFile& file : files) {
    hash.add(std::filesystem::absolute(file.path).string())
        .add(static_cast<std::uint64_t>(file.size))
        .add(static_cast<std::uint64_t>(file.modified_ns))
        .add(static_cast<std::uint64_t>(file.changed_ns));
    const files::InputFile text(file.path);
    for (const std::int64_t begin :
         {std::int64_t{0}, std::max<std::int64_t>(most, file.size - most)})
      hash.add(std::span(bytes).first(text.read_some(begin, bytes)));
  }
  return hash.value();
}

TextSources find_text(const std::vector<std::string>& entries, const std::string& key) {
  Finder finder(key);
  finder.find(entries, true);
  return std::move(finder.sources);
}

void say_skipped(const TextSources& sources, const std::string& key, Log& log) {
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
          "% "
          "of its beginning are control characters. Remove it, or give it by its own name to read "
          "it anyway",
          key, file.path, 100 * static_cast<double>(file.size) / static_cast<double>(all));
  for (const std::string& path : sources.odd)
    log.warning(
        "{}: {} is read as text because it is given by its own name, although more than 1 % of its "
        "beginning are control characters",
        key, path);
}

std::vector<std::string> find_shards(const std::vector<std::string>& entries,
                                     const std::string& key) {
  Finder finder(key);
  finder.find(entries, false);
  std::vector<std::string> paths;
  paths.reserve(finder.sources.files.size());
  for (TextFile& file : finder.sources.files) paths.push_back(std::move(file.path));
  return paths;
}

}  // namespace trireme::tokens
