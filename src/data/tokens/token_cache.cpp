// SPDX-License-Identifier: Apache-2.0
#include "tokens/token_cache.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "files/output_file.hpp"
#include "files/path.hpp"

#include "tokens/documents.hpp"
#include "tokens/stored_hash.hpp"
#include "tokens/text_input.hpp"

namespace trireme::tokens {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

namespace {

std::uint64_t checksum_of(const CacheHeader& header) {
  const auto bytes = std::as_bytes(std::span(&header, 1));
  return StoredHash().add(bytes.first(offsetof(CacheHeader, checksum))).value();
}

/// What the cache will hold, as it is written.
class Writer {
 public:
  Writer(const files::Descriptor& out, CacheHeader& header) : out_(out), header_(header) {}
  virtual ~Writer() = default;
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  /// The number of tokens that the file gave.
  virtual std::uint64_t append(const TextFile& file) = 0;
  /// What was held back until all files were read.
  virtual void append_rest() {}
  /// The hashes of all blocks, once, at the end.
  std::vector<std::uint64_t> finish() { return hashes_.finish(); }

 protected:
  void put(std::span<const std::byte> bytes) {
    out_.write(bytes);
    hashes_.add(bytes);
    header_.tokens += bytes.size() / header_.token_bytes;
  }
  [[nodiscard]] CacheHeader& header() const { return header_; }

 private:
  const files::Descriptor& out_;
  CacheHeader& header_;
  BlockHashes hashes_;
};

/// Bytes as they are.
class ByteWriter : public Writer {
 public:
  using Writer::Writer;

  std::uint64_t append(const TextFile& file) override {
    const auto tokens_before = header().tokens;
    TextInput in(file.path);
    bool first = true;
    while (const std::size_t count = in.read_some(buffer_)) {
      const auto bytes = std::span<const std::byte>(buffer_).first(count);
      if (std::exchange(first, false) && header().tokens > 0 && last_ != newline[0])
        put(newline);
      put(bytes);
      last_ = bytes.back();
    }
    if (!first)
      ++header().files;
    return header().tokens - tokens_before;
  }

 private:
  static constexpr std::array<std::byte, 1> newline = {std::byte{'\n'}};

  std::byte last_{};
  std::vector<std::byte> buffer_ = std::vector<std::byte>(std::size_t{1} << 20U);
};

/// Tokens of documents.
class TokenWriter : public Writer {
 public:
  TokenWriter(const files::Descriptor& out,
              CacheHeader& header,
              const Encoding& encoding,
              std::string path)
      : Writer(out, header), encoding_(encoding), encoding_path_(std::move(path)) {}

  std::uint64_t append(const TextFile& file) override {
    const auto before = header().tokens + held_bytes_ / header().token_bytes;
    Documents documents(file.path, encoding_.format);
    bool checks = false;
    encode_documents(documents, file.path, *encoding_.tokenizer,
                     [&](const TextPiece& piece, const auto& tokens) {
                       bytes_.clear();
                       pack_tokens(tokens, static_cast<int>(header().token_bytes), bytes_);
                       if (piece.begins_document)
                         checks = validates(piece.text, encoding_.validation_fraction);
                       if (checks)
                         hold(bytes_);
                       else
                         put(bytes_);
                     });
    header().documents += static_cast<std::uint64_t>(documents.notes().documents);
    if (encoding_.notes != nullptr)
      encoding_.notes->add(documents.notes());
    ++header().files;
    return header().tokens + held_bytes_ / header().token_bytes - before;
  }
  void append_rest() override {
    bytes_.resize(std::size_t{1} << 20U);
    header().validation = held_bytes_ / header().token_bytes;
    for (std::uint64_t at = 0; at < held_bytes_;) {
      const auto part = std::span(bytes_).first(
          static_cast<std::size_t>(std::min<std::uint64_t>(bytes_.size(), held_bytes_ - at)));
      if (held_->file().read_some(static_cast<std::int64_t>(at), part) < part.size())
        files::fail("read " + held_->file().path(), ENODATA);
      put(part);
      at += part.size();
    }
  }

 private:
  /// Into a file of its own, since it may be large.
  void hold(std::span<const std::byte> bytes) {
    if (!held_)
      held_.emplace(encoding_path_ + ".validation");
    held_->file().write(bytes);
    held_bytes_ += bytes.size();
  }

  const Encoding& encoding_;
  const std::string encoding_path_;
  std::optional<files::StagedFile> held_;
  std::uint64_t held_bytes_ = 0;
  std::vector<std::byte> bytes_;
};

/// Throws UserError for entries that gave nothing.
void expect_text(const std::vector<std::string>& entries,
                 const std::vector<std::uint64_t>& files_of,
                 const std::vector<std::uint64_t>& tokens_of,
                 const std::string& key) {
  std::vector<Diagnostic> found;
  for (std::size_t i = 0; i < entries.size(); ++i)
    if (files_of[i] > 0 && tokens_of[i] == 0)
      found.push_back({{},
                       key,
                       fmt::format("'{}' contains no text: {} files, all empty or binary",
                                   entries[i], files_of[i])});
  if (found.empty() && std::ranges::all_of(tokens_of, [](std::uint64_t n) { return n == 0; }))
    found.push_back({{}, key, "no text in any of the entries"});
  if (!found.empty())
    throw UserError(std::move(found));
}

}  // namespace

CacheHeader build_cache(const std::string& path,
                        const TextSources& sources,
                        const std::vector<std::string>& entries,
                        const Encoding& encoding,
                        const std::string& key) {
  const std::filesystem::path place(path);
  files::make_directories(place.parent_path().string());
  files::remove_abandoned(place.parent_path().string(),
                          {place.filename().string(), place.filename().string() + ".validation"});
  files::StagedFile draft(path);
  const auto* const tokenizer = encoding.tokenizer;
  const std::int64_t vocabulary = tokenizer == nullptr ? 256 : tokenizer->vocabulary();
  CacheHeader header{
      .magic = cache_magic,
      .version = cache_version,
      .header_bytes = sizeof(CacheHeader),
      .token_bytes = static_cast<std::uint32_t>(tokenizer == nullptr ? 1 : width_of(vocabulary)),
      .vocabulary = static_cast<std::uint32_t>(vocabulary),
      .source_fingerprint = sources.fingerprint(),
      .binary_files = sources.binary.size(),
      .tokenizer = tokenizer == nullptr ? 0 : tokenizer->hash()};
  draft.file().write(std::as_bytes(std::span(&header, 1)));  // its place; its values come last

  std::unique_ptr<Writer> writer;
  if (tokenizer == nullptr)
    writer = std::make_unique<ByteWriter>(draft.file(), header);
  else
    writer = std::make_unique<TokenWriter>(draft.file(), header, encoding, path);
  std::vector<std::uint64_t> files_of(entries.size()), tokens_of(entries.size());
  for (const TextFile& file : sources.binary) ++files_of.at(file.entry);
  std::int64_t all_bytes = 0, done_bytes = 0;
  for (const TextFile& file : sources.files) all_bytes += file.size;
  for (const TextFile& file : sources.files) {
    if (encoding.progress)
      encoding.progress(done_bytes, all_bytes);
    if (encoding.begins != nullptr)
      encoding.begins->push_back(header.tokens);
    ++files_of.at(file.entry);
    tokens_of.at(file.entry) += writer->append(file);
    done_bytes += file.size;
  }
  expect_text(entries, files_of, tokens_of, key);
  writer->append_rest();

  const std::vector<std::uint64_t> hashes = writer->finish();
  draft.file().write(std::as_bytes(std::span(hashes)));
  header.content_hash = hash_of_blocks(
      hashes, static_cast<std::int64_t>(header.tokens) * std::int64_t{header.token_bytes});
  header.checksum = checksum_of(header);
  draft.file().rewrite_front(std::as_bytes(std::span(&header, 1)));
  draft.commit();
  return header;
}

namespace {

constexpr const char* no_cache =
    "is not a token cache of trireme; remove it or name another directory in data.cache";

constexpr std::uint64_t blocks_of(std::uint64_t bytes) {
  return bytes / block_bytes + (bytes % block_bytes != 0 ? 1 : 0);
}

/// Reads the header; "" when it fits the file, else what is wrong.
std::string header_problem(const files::InputFile& file, CacheHeader& header) {
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
  if (header.checksum != checksum_of(header) || header.validation > header.tokens ||
      header.header_bytes != sizeof header ||
      (header.token_bytes != 1 && header.token_bytes != 2 && header.token_bytes != 4))
    return "has a damaged header";
  // Compared as what the size leaves, so that no product of a wild number is made.
  const auto rest = static_cast<std::uint64_t>(size) - sizeof header;
  const bool countable = header.tokens <= rest;
  const std::uint64_t bytes = header.tokens * header.token_bytes;
  const std::uint64_t wanted = bytes + blocks_of(bytes) * sizeof(std::uint64_t);
  if (!countable || wanted != rest)
    return fmt::format("is {}: {} bytes where its header says {}",
                       !countable || wanted > rest ? "truncated" : "too long", size,
                       sizeof header + wanted);
  return "";
}

/// "" and the segment with its hashes, or what is wrong. The tokens are not read.
std::string open_segment(files::InputFile file, CacheHeader& header, Segment& segment) {
  if (std::string problem = header_problem(file, header); !problem.empty())
    return problem;
  const auto tokens = static_cast<std::int64_t>(header.tokens);
  const int width = static_cast<int>(header.token_bytes);
  std::vector<std::uint64_t> hashes(blocks_of(header.tokens * header.token_bytes));
  file.read(static_cast<std::int64_t>(sizeof header) + tokens * width,
            std::as_writable_bytes(std::span(hashes)));
  if (hash_of_blocks(hashes, tokens * width) != header.content_hash)
    return "is damaged: its hashes do not match its tokens";
  Segment made(std::move(file), sizeof header, width, tokens);
  made.expect(std::move(hashes));
  segment = std::move(made);
  return "";
}

}  // namespace

std::string cache_problem(const std::string& path, CacheHeader& header) {
  Segment segment;
  if (std::string problem = open_segment(files::InputFile(path), header, segment); !problem.empty())
    return problem;
  if (const std::int64_t block = segment.first_damaged(); block >= 0)
    return fmt::format("is damaged: block {} of {} does not match its hash", block + 1,
                       segment.num_blocks());
  return "";
}

std::unique_ptr<TokenStream> open_cache(const std::string& path) {
  CacheHeader header;
  std::vector<Segment> segments(1);
  if (const std::string problem = open_segment(files::InputFile(path), header, segments.front());
      !problem.empty())
    throw UserError(Place{path},
                    fmt::format("the token cache {}; remove it to rebuild it", problem));
  return std::make_unique<FileTokens>(
      std::move(segments), std::int64_t{header.vocabulary}, header.content_hash,
      fmt::format("{}{} tokens of {} text files in {}", header.tokens,
                  header.tokenizer == 0 ? " byte" : "", header.files, path));
}

}  // namespace trireme::tokens
