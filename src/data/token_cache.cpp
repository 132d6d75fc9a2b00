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
  /// What was written at `offset`.
  void read_at(std::uint64_t offset, std::span<std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t count = ::pread(value_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR)
        continue;
      if (count <= 0)
        fail("read " + path_, count < 0 ? errno : ENODATA);
      offset += static_cast<std::uint64_t>(count);
      bytes = bytes.subspan(static_cast<std::size_t>(count));
    }
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
        file_(draft_, O_RDWR | O_CREAT | O_TRUNC) {}
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
    const InputFile in(file.path);
    bool first = true;
    std::int64_t at = 0;
    while (const std::size_t count = in.read_some(at, buffer_)) {
      at += static_cast<std::int64_t>(count);
      const auto bytes = std::span<const std::byte>(buffer_).first(count);
      if (!file.named && std::memchr(bytes.data(), 0, bytes.size()) != nullptr) {
        header_.tokens = tokens_before;
        last_ = last_before;
        take_back(tokens_before);
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
  /// The hashes of all blocks, once, at the end.
  std::vector<std::uint64_t> finish() { return hashes_.finish(); }

 private:
  static constexpr std::array<std::byte, 1> newline = {std::byte{'\n'}};

  void put(std::span<const std::byte> bytes) {
    out_.write(bytes);
    hashes_.add(bytes);
    header_.tokens += bytes.size();
    last_ = bytes.back();
  }

  void take_back(std::uint64_t tokens) {
    const auto size = static_cast<std::int64_t>(tokens);
    std::vector<std::byte> rest(static_cast<std::size_t>(size % block_bytes));
    out_.read_at(sizeof(CacheHeader) + tokens - rest.size(), rest);
    hashes_.rewind(size, rest);
    out_.rewind(sizeof(CacheHeader) + tokens);
  }

  const Descriptor& out_;
  CacheHeader& header_;
  BlockHashes hashes_;
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

  const std::vector<std::uint64_t> hashes = tokens.finish();
  draft.file().write(std::as_bytes(std::span(hashes)));
  header.content_hash = hash_of_blocks(hashes, static_cast<std::int64_t>(header.tokens));
  header.checksum = checksum_of(header);
  draft.file().rewrite_front(std::as_bytes(std::span(&header, 1)));
  draft.commit();
  return header;
}

namespace {

constexpr const char* no_cache =
    "is not a token cache of trireme; remove it or name another directory in data.cache";

/// Reads the header; "" when it fits the file, else what is wrong.
std::string header_problem(const InputFile& file, CacheHeader& header) {
  const std::int64_t size = file.size();
  const auto front = std::as_writable_bytes(std::span(&header, 1));
  const std::size_t got = file.read_some(0, front);
  if (got >= sizeof header.magic && header.magic != cache_magic)
    throw UserError(Place{file.path()}, no_cache);
  if (got < sizeof header)
    return fmt::format("is truncated within its header ({} bytes)", size);
  if (header.version != cache_version)
    return fmt::format("has format version {}, this program reads version {}", header.version,
                       cache_version);
  if (header.checksum != checksum_of(header) || header.header_bytes != sizeof header ||
      header.token_bytes != 1)
    return "has a damaged header";
  // Compared as what the size leaves, so that no product of a wild number is made.
  const auto rest = static_cast<std::uint64_t>(size) - sizeof header;
  const std::uint64_t blocks =
      header.tokens / block_bytes + (header.tokens % block_bytes != 0 ? 1 : 0);
  const std::uint64_t wanted = header.tokens + blocks * sizeof(std::uint64_t);
  if (header.tokens > rest || wanted != rest)
    return fmt::format("is {}: {} bytes where its header says {}",
                       header.tokens > rest || wanted > rest ? "truncated" : "too long", size,
                       sizeof header + wanted);
  return "";
}

/// "" and the segment with its hashes, or what is wrong. The tokens are not read.
std::string open_segment(InputFile file, CacheHeader& header, Segment& segment) {
  if (std::string problem = header_problem(file, header); !problem.empty())
    return problem;
  const auto tokens = static_cast<std::int64_t>(header.tokens);
  Segment made(std::move(file), sizeof header, static_cast<int>(header.token_bytes), tokens);
  std::vector<std::uint64_t> hashes(static_cast<std::size_t>(made.num_blocks()));
  made.file().read(static_cast<std::int64_t>(sizeof header) + made.bytes(),
                   std::as_writable_bytes(std::span(hashes)));
  if (hash_of_blocks(hashes, made.bytes()) != header.content_hash)
    return "is damaged: the hashes of its tokens do not match theirs";
  made.expect(std::move(hashes));
  segment = std::move(made);
  return "";
}

}  // namespace

std::string cache_problem(const std::string& path, CacheHeader& header) {
  Segment segment;
  if (std::string problem = open_segment(InputFile(path), header, segment); !problem.empty())
    return problem;
  if (const std::int64_t block = segment.first_damaged(); block >= 0)
    return fmt::format("is damaged: block {} of {} does not match its hash", block + 1,
                       segment.num_blocks());
  return "";
}

std::unique_ptr<TokenStream> open_cache(const std::string& path) {
  CacheHeader header;
  std::vector<Segment> segments(1);
  if (const std::string problem = open_segment(InputFile(path), header, segments.front());
      !problem.empty())
    throw UserError(Place{path},
                    fmt::format("the token cache {}; remove it and it is built again", problem));
  return std::make_unique<FileTokens>(
      std::move(segments), std::int64_t{header.vocabulary}, header.content_hash,
      fmt::format("{} byte tokens of {} text files in {}", header.tokens, header.files, path));
}

}  // namespace trireme::data
