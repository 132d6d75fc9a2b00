// SPDX-License-Identifier: Apache-2.0
#include "data/token_cache.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <span>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "base/error.hpp"

#include "data/hash.hpp"

namespace trireme::data {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

namespace {

[[noreturn]] void fail(const std::string& statement, int error) {
  throw StorageError("file system", statement, std::strerror(error), __FILE__, __LINE__);
}

std::uint64_t checksum_of(const CacheHeader& header) {
  const auto bytes = std::as_bytes(std::span(&header, 1));
  return Hash().add(bytes.first(offsetof(CacheHeader, checksum))).value();
}

class Descriptor {
 public:
  Descriptor(const std::string& path, int flags) : path_(path) {
    value_ = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
    if (value_ < 0)
      fail("open " + path, errno);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { ::close(value_); }

  void write(std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t count = ::write(value_, bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR)
        continue;
      if (count < 0)
        fail("write " + path_, errno);
      bytes = bytes.subspan(static_cast<std::size_t>(count));
    }
  }
  /// At most buffer.size() bytes; 0 at the end.
  [[nodiscard]] std::size_t read(std::span<std::byte> buffer) const {
    ssize_t count = -1;
    do {
      count = ::read(value_, buffer.data(), buffer.size());
    } while (count < 0 && errno == EINTR);
    if (count < 0)
      fail("read " + path_, errno);
    return static_cast<std::size_t>(count);
  }
  /// Continues writing at `offset`; what lay behind it is gone.
  void rewind(std::uint64_t offset) const {
    const auto place = static_cast<off_t>(offset);
    if (::ftruncate(value_, place) != 0 || ::lseek(value_, place, SEEK_SET) != place)
      fail("truncate " + path_, errno);
  }
  /// Replaces the bytes at the file's begin.
  void rewrite_front(std::span<const std::byte> bytes) const {
    if (::lseek(value_, 0, SEEK_SET) != 0)
      fail("seek in " + path_, errno);
    write(bytes);
  }
  void sync() const {
    if (::fsync(value_) != 0)
      fail("fsync " + path_, errno);
  }

 private:
  std::string path_;
  int value_;
};

/// A file that goes away unless commit() gives it its name.
class Draft {
 public:
  explicit Draft(std::string path)
      : path_(std::move(path)),
        draft_(fmt::format("{}.{}.part", path_, ::getpid())),
        file_(draft_, O_WRONLY | O_CREAT | O_TRUNC) {}
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;
  ~Draft() {
    if (!committed_)
      ::unlink(draft_.c_str());
  }

  [[nodiscard]] const Descriptor& file() const { return file_; }
  void commit() {
    file_.sync();
    if (::rename(draft_.c_str(), path_.c_str()) != 0)
      fail(fmt::format("rename {} to {}", draft_, path_), errno);
    committed_ = true;
    Descriptor(std::filesystem::path(path_).parent_path().string(), O_RDONLY | O_DIRECTORY).sync();
  }

 private:
  std::string path_, draft_;
  Descriptor file_;
  bool committed_ = false;
};

/// Appends files to the draft; a file that turns out to be binary is taken back.
class Tokens {
 public:
  Tokens(const Descriptor& out, CacheHeader& header)
      : out_(out), header_(header), buffer_(std::size_t{1} << 20U) {}

  /// The number of tokens that the file gave.
  std::uint64_t append(const TextFile& file) {
    const auto tokens_before = header_.tokens;
    const auto last_before = last_;
    const Hash hash_before = hash_;
    const Descriptor in(file.path, O_RDONLY);
    bool first = true;
    while (const std::size_t count = in.read(buffer_)) {
      const auto bytes = std::span<const std::byte>(buffer_).first(count);
      if (!file.named && std::memchr(bytes.data(), 0, bytes.size()) != nullptr) {
        header_.tokens = tokens_before;
        last_ = last_before;
        hash_ = hash_before;
        out_.rewind(sizeof(CacheHeader) + tokens_before);
        ++header_.binary_files;
        return 0;
      }
      if (std::exchange(first, false) && header_.tokens > 0 && last_ != newline[0])
        put(newline);
      put(bytes);
    }
    if (!first)
      ++header_.files;
    return header_.tokens - tokens_before;
  }
  [[nodiscard]] std::uint64_t hash() const { return hash_.value(); }

 private:
  static constexpr std::array<std::byte, 1> newline = {std::byte{'\n'}};

  void put(std::span<const std::byte> bytes) {
    out_.write(bytes);
    hash_.add(bytes);
    header_.tokens += bytes.size();
    last_ = bytes.back();
  }

  const Descriptor& out_;
  CacheHeader& header_;
  Hash hash_;
  std::byte last_{};
  std::vector<std::byte> buffer_;
};

}  // namespace

CacheHeader build_cache(const std::string& path,
                        const TextSources& sources,
                        const std::vector<std::string>& entries) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  if (error)
    fail("create directory " + std::filesystem::path(path).parent_path().string(), error.value());
  Draft draft(path);
  CacheHeader header{.magic = cache_magic,
                     .version = cache_version,
                     .header_bytes = sizeof(CacheHeader),
                     .token_bytes = 1,
                     .vocabulary = 256,
                     .source_fingerprint = sources.fingerprint()};
  draft.file().write(std::as_bytes(std::span(&header, 1)));  // its place; its values come last

  Tokens tokens(draft.file(), header);
  std::vector<std::uint64_t> files_of(entries.size()), tokens_of(entries.size());
  for (const TextFile& file : sources.files) {
    ++files_of.at(file.entry);
    tokens_of.at(file.entry) += tokens.append(file);
  }
  std::vector<Diagnostic> found;
  for (std::size_t i = 0; i < entries.size(); ++i)
    if (files_of[i] > 0 && tokens_of[i] == 0)
      found.push_back({{},
                       "data.train.text",
                       fmt::format("'{}' holds no text: {} files, all empty or with NUL bytes",
                                   entries[i], files_of[i])});
  if (!found.empty())
    throw UserError(std::move(found));
  if (header.tokens == 0)
    throw UserError({Diagnostic{{}, "data.train.text", "no text in any of the entries"}});

  header.content_hash = tokens.hash();
  header.checksum = checksum_of(header);
  draft.file().rewrite_front(std::as_bytes(std::span(&header, 1)));
  draft.commit();
  return header;
}

namespace {

CacheHeader checked_header(const MappedFile& file) {
  const auto refuse = [&](std::string text) {
    throw UserError(Place{file.path()}, std::move(text));
  };
  const auto bytes = file.bytes();
  CacheHeader header;
  if (!bytes.empty())
    std::memcpy(&header, bytes.data(), std::min(bytes.size(), sizeof header));
  if (bytes.size() >= sizeof header.magic && header.magic != cache_magic)
    refuse("is not a token cache of trireme; remove it or name another directory in data.cache");
  if (bytes.size() < sizeof header)
    refuse(
        fmt::format("token cache is truncated within its header ({} bytes); remove it and it is "
                    "built again",
                    bytes.size()));
  if (header.version != cache_version)
    refuse(
        fmt::format("token cache has format version {}, this program reads version {}; remove "
                    "it and it is built again",
                    header.version, cache_version));
  if (header.checksum != checksum_of(header) || header.header_bytes != sizeof header ||
      header.token_bytes != 1)
    refuse("token cache has a damaged header; remove it and it is built again");
  const std::uint64_t wanted = sizeof header + header.tokens * header.token_bytes;
  if (bytes.size() != wanted)
    refuse(
        fmt::format("token cache is {}: {} bytes where its header says {}; remove it and it is "
                    "built again",
                    bytes.size() < wanted ? "truncated" : "too long", bytes.size(), wanted));
  return header;
}

}  // namespace

CacheHeader read_cache_header(const std::string& path) {
  return checked_header(MappedFile(path));
}

std::unique_ptr<TokenStream> open_cache(const std::string& path) {
  MappedFile file(path);
  const CacheHeader header = checked_header(file);
  const auto count = static_cast<std::int64_t>(header.tokens);
  std::vector<Segment> segments;
  segments.push_back({std::move(file), sizeof header, static_cast<int>(header.token_bytes), count});
  return std::make_unique<MappedTokens>(
      std::move(segments), std::int64_t{header.vocabulary}, header.content_hash,
      fmt::format("{} byte tokens of {} text files in {}", count, header.files, path));
}

}  // namespace trireme::data
