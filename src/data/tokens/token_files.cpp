// SPDX-License-Identifier: Apache-2.0
#include "tokens/token_files.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"
#include "files/input_file.hpp"

#include "tokens/file_kind.hpp"
#include "tokens/manifest.hpp"
#include "tokens/megatron.hpp"
#include "tokens/numpy.hpp"
#include "tokens/rows.hpp"
#include "tokens/stored_hash.hpp"

namespace trireme::tokens {

namespace {

/// A file that was examined, and where its documents begin when it states that itself.
struct Examined {
  TokenFile file;
  std::vector<std::int64_t> documents;
  bool is_signed = false;
};

/// The text of the finding, or nothing when `file` now is the shard.
std::string examine_llmc(const files::InputFile& input, std::int32_t magic, TokenFile& file) {
  std::array<std::int32_t, 3> header{};
  input.read(0, std::as_writable_bytes(std::span(header)));
  const std::int32_t version = header[1], tokens = header[2];
  const std::int32_t known = magic == llmc_magic_2 ? 1 : 7;
  if (version != known)
    return fmt::format("is a token shard of version {}, this program reads version {}", version,
                       known);
  file.width = magic == llmc_magic_2 ? 2 : 4;
  file.offset = llmc_header_bytes;
  file.tokens = tokens;
  const std::int64_t wanted = llmc_header_bytes + std::int64_t{tokens} * file.width;
  if (tokens < 1)
    return fmt::format("is a token shard of {} tokens", tokens);
  if (input.size() != wanted)
    return fmt::format("token shard is {}: {} bytes where its header says {}",
                       input.size() < wanted ? "truncated" : "too long", input.size(), wanted);
  return {};
}

std::string examine_raw(TokenFormat format, TokenFile& file) {
  file.width = format == TokenFormat::uint16 ? 2 : 4;
  file.tokens = file.file_bytes / file.width;
  if (file.file_bytes == 0 || file.file_bytes % file.width != 0)
    return fmt::format("has {} bytes, no multiple of the {} of a {} token (format: {})",
                       file.file_bytes, file.width, word(format), word(format));
  return {};
}

/// A finding, or nothing.
std::optional<Diagnostic> examine(const std::string& path, TokenFormat format, Examined& made) {
  const auto finding = [](const std::string& where, std::string text) {
    return text.empty() ? std::nullopt : std::optional(Diagnostic{{where}, "", std::move(text)});
  };
  const files::InputFile input(path);
  made.file.path = path;
  made.file.file_bytes = input.size();
  std::string front(kind_front, '\0');
  front.resize(input.read_some(0, std::as_writable_bytes(std::span(front))));
  const FileKind* const kind = kind_of(front);
  const bool known = kind != nullptr && !kind->weak;
  if (known && !kind->in_tokens.empty())
    return finding(path, fmt::format("is {}, not a token file. {}", kind->name, kind->in_tokens));
  if (known && format != TokenFormat::automatic)
    return finding(path, fmt::format("is {} with a header, not raw numbers. Remove format: {}; the "
                                     "header states the type of the tokens",
                                     kind->name, word(format)));
  if (format != TokenFormat::automatic)
    return finding(path, examine_raw(format, made.file));
  if (front.starts_with(numpy_magic)) {
    NumpyArray array;
    auto problem = finding(path, read_numpy(input, array));
    made.file.width = array.width;
    made.file.offset = array.offset;
    made.file.tokens = array.tokens;
    made.is_signed = array.is_signed;
    return problem;
  }
  std::int32_t magic = 0;
  const bool headed = input.size() >= llmc_header_bytes;
  if (headed)
    input.read(0, std::as_writable_bytes(std::span(&magic, 1)));
  if (magic == llmc_magic_2 || magic == llmc_magic_4)
    return finding(path, examine_llmc(input, magic, made.file));
  const std::string index_path = megatron_index_of(path);
  std::error_code ignored;
  if (!index_path.empty() && std::filesystem::exists(index_path, ignored)) {
    MegatronIndex index;
    auto problem = finding(index_path, read_megatron_index(index_path, input.size(), index));
    made.file.width = index.width;
    made.file.tokens = index.tokens;
    made.documents = std::move(index.documents);
    return problem;
  }
  if (!headed)
    return finding(path, fmt::format("is not a token shard: {} bytes, the header of llm.c's alone "
                                     "takes {}; for raw numbers give `format`",
                                     input.size(), llmc_header_bytes));
  return finding(path,
                 fmt::format("is not a token shard of llm.c: it starts with {}, not {} or {}, "
                             "and there is no .idx of Megatron next to it; for raw numbers give "
                             "`format`",
                             magic, llmc_magic_2, llmc_magic_4));
}

/// The place and value of the first token at or above `vocabulary` in a block, or nothing.
template <class Token>
std::optional<std::pair<std::int64_t, Token>> first_outside(std::span<const std::byte> bytes,
                                                            std::int64_t vocabulary) {
  const std::size_t count = bytes.size() / sizeof(Token);
  const auto token = [&](std::size_t i) {
    Token value;
    std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
    return value;
  };
  Token highest = 0;
  for (std::size_t i = 0; i < count; ++i) highest = std::max(highest, token(i));
  if (std::cmp_less(highest, vocabulary))
    return std::nullopt;
  std::size_t i = 0;
  while (std::cmp_less(token(i), vocabulary)) ++i;
  return std::pair(static_cast<std::int64_t>(i), token(i));
}

/// Calls take(place) for every end of text.
template <class Token, class Take>
void find_documents(std::span<const std::byte> bytes, std::int32_t end_of_text, Take&& take) {
  if (end_of_text < 0 || std::cmp_greater(end_of_text, std::numeric_limits<Token>::max()))
    return;
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(Token)) {
    Token value;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    if (value == static_cast<Token>(end_of_text))
      take(static_cast<std::int64_t>(at / sizeof(Token)));
  }
}

/// Reads files once, one after the other.
class Checker {
 public:
  Checker(const TokenRequirements& requirements, std::int64_t all_bytes, TokenFiles& made)
      : requirements_(requirements),
        all_bytes_(all_bytes),
        made_(made),
        rows_(std::max<std::int64_t>(requirements.row_context, 1)) {}

  std::optional<Diagnostic> check(const Examined& examined) {
    const TokenFile& file = examined.file;
    const Segment segment(file.path, file.file_bytes, file.offset, file.width, file.tokens);
    if (wants_rows())
      for (const std::int64_t document : examined.documents) rows_.document(tokens_ + document);
    const bool marks_rows = wants_rows() && examined.documents.empty();
    const bool searches =
        (marks_rows || requirements_.counts_documents) && requirements_.end_of_text;
    // A negative number is one of the upper half of the unsigned ones.
    const std::int64_t bound = examined.is_signed
                                   ? std::min(requirements_.vocabulary,
                                              std::int64_t{1} << std::min(8 * file.width - 1, 62))
                                   : requirements_.vocabulary;
    BlockHashes hashes;
    const std::int64_t before = read_bytes_;
    for (std::int64_t block = 0; block < segment.num_blocks(); ++block) {
      const auto bytes = segment.read_block(block, room_);
      hashes.add(bytes);
      const std::int64_t first = block * (block_bytes / file.width);
      std::optional<Diagnostic> found;
      with_width(file.width, [&]<class Token>(Token) {
        if (const auto outside = first_outside<Token>(bytes, bound))
          found = outside_finding(examined, first + outside->first, outside->second);
        else if (searches)
          find_documents<Token>(bytes, *requirements_.end_of_text, [&](std::int64_t place) {
            ++made_.documents;
            if (marks_rows)
              rows_.document(tokens_ + first + place);
          });
      });
      if (found)
        return found;
      if (requirements_.progress)
        requirements_.progress(read_bytes_ += std::ssize(bytes), all_bytes_);
    }
    read_bytes_ = before + file.file_bytes;
    const auto sums = hashes.finish();
    made_.sums.insert(made_.sums.end(), sums.begin(), sums.end());
    made_.files.push_back(file);
    tokens_ += file.tokens;
    if (auto problem = manifests_.problem(
            file.path, file.tokens, hash_of_blocks(sums, segment.bytes()), requirements_.tokenizer);
        !problem.empty())
      return Diagnostic{{file.path}, "", std::move(problem)};
    return std::nullopt;
  }
  void finish() {
    if (wants_rows())
      made_.rows = rows_.finish(tokens_);
  }

 private:
  [[nodiscard]] bool wants_rows() const { return requirements_.row_context > 0; }

  template <class Action>
  static void with_width(int width, Action&& action) {
    if (width == 1)
      action(std::uint8_t{});
    else if (width == 2)
      action(std::uint16_t{});
    else if (width == 4)
      action(std::uint32_t{});
    else
      action(std::uint64_t{});
  }

  [[nodiscard]] Diagnostic outside_finding(const Examined& examined,
                                           std::int64_t place,
                                           std::uint64_t token) const {
    const TokenFile& file = examined.file;
    const auto unused = static_cast<unsigned>(64 - 8 * file.width);
    const auto as_signed = static_cast<std::int64_t>(token << unused) >> unused;
    return {
        {file.path},
        "",
        fmt::format("token {} is {}, model.vocabulary is {} (byte {} of the file): these "
                    "tokens are another tokenizer's, or model.vocabulary is too small",
                    place, examined.is_signed ? std::to_string(as_signed) : std::to_string(token),
                    requirements_.vocabulary, file.offset + place * file.width)};
  }

  const TokenRequirements& requirements_;
  const std::int64_t all_bytes_;
  std::int64_t read_bytes_ = 0;
  TokenFiles& made_;
  RowStarts rows_;
  Manifests manifests_;
  std::int64_t tokens_ = 0;
  std::vector<std::byte> room_ = std::vector<std::byte>(static_cast<std::size_t>(block_bytes));
};

}  // namespace

TokenFiles check_token_files(const std::vector<std::string>& paths,
                             const TokenRequirements& requirements) {
  std::vector<Diagnostic> found;
  std::vector<Examined> examined(paths.size());
  for (std::size_t i = 0; i < paths.size(); ++i)
    if (auto finding = examine(paths[i], requirements.format, examined[i]))
      found.push_back(*std::move(finding));
  if (!found.empty())
    throw UserError(std::move(found));
  TokenFiles made;
  std::int64_t all_bytes = 0;
  for (const Examined& one : examined) all_bytes += one.file.file_bytes;
  Checker checker(requirements, all_bytes, made);
  for (const Examined& one : examined)
    if (auto finding = checker.check(one))
      found.push_back(*std::move(finding));
  if (!found.empty())
    throw UserError(std::move(found));
  checker.finish();
  return made;
}

std::unique_ptr<TokenStream> open_token_files(const TokenFiles& found, std::int64_t vocabulary) {
  std::int64_t tokens = 0, highest = 0;
  std::span<const std::uint64_t> rest(found.sums);
  std::vector<Segment> segments;
  StoredHash hash;
  for (const TokenFile& file : found.files) {
    Segment& segment =
        segments.emplace_back(file.path, file.file_bytes, file.offset, file.width, file.tokens);
    const auto blocks = static_cast<std::size_t>(segment.num_blocks());
    TRIREME_EXPECT(blocks <= rest.size(), "{} blocks of {}, hashes for {}", blocks, file.path,
                   rest.size());
    const auto own = rest.first(blocks);
    rest = rest.subspan(blocks);
    segment.expect({own.begin(), own.end()});
    hash.add(static_cast<std::uint64_t>(segment.token_bytes()))
        .add(hash_of_blocks(own, segment.bytes()));
    tokens += segment.tokens();
    highest = std::max(highest, std::int64_t{1} << std::min(8 * segment.token_bytes(), 62));
  }
  auto description = fmt::format("{} tokens in {} files, {}", tokens, found.files.size(),
                                 found.files.empty() ? "none" : found.files.front().path);
  return std::make_unique<FileTokens>(std::move(segments), std::min(vocabulary, highest),
                                      hash.value(), std::move(description));
}

std::vector<std::int64_t> rows_of_stream(const TokenStream& stream,
                                         std::int64_t context,
                                         std::int32_t end_of_text) {
  RowStarts rows(context);
  std::vector<std::int32_t> block(1 << 14);
  for (std::int64_t at = 0; at < stream.size(); at += std::ssize(block)) {
    const auto part = std::span(block).first(
        static_cast<std::size_t>(std::min<std::int64_t>(std::ssize(block), stream.size() - at)));
    stream.read(at, part);
    for (std::size_t i = 0; i < part.size(); ++i)
      if (part[i] == end_of_text)
        rows.document(at + static_cast<std::int64_t>(i));
  }
  return rows.finish(stream.size());
}

}  // namespace trireme::tokens
