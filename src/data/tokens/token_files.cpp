// SPDX-License-Identifier: Apache-2.0
#include "tokens/token_files.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <span>

#include <fmt/format.h>

#include "base/error.hpp"
#include "files/descriptor.hpp"

#include "tokens/file_kind.hpp"
#include "tokens/stored_hash.hpp"

namespace trireme::tokens {

namespace {

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
std::optional<Diagnostic> examine(const std::string& path, TokenFormat format, ExaminedFile& made) {
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
  if (front.starts_with(numpy_magic))
    return finding(path, examine_numpy(input, made));
  std::int32_t magic = 0;
  const bool headed = input.size() >= llmc_header_bytes;
  if (headed)
    input.read(0, std::as_writable_bytes(std::span(&magic, 1)));
  if (magic == llmc_magic_2 || magic == llmc_magic_4)
    return finding(path, examine_llmc(input, magic, made.file));
  std::error_code ignored;
  if (const std::string index = path.substr(0, path.size() - 4) + ".idx";
      path.ends_with(".bin") && std::filesystem::exists(index, ignored))
    return finding(index, examine_megatron(index, made));
  if (!headed)
    return finding(path, fmt::format("is not a token shard: {} bytes, the header of llm.c's alone "
                                     "takes {}; a deck reads raw numbers with `format`",
                                     input.size(), llmc_header_bytes));
  return finding(
      path, fmt::format("is not a token shard of llm.c: it starts with {}, not {} or {}, "
                        "and there is no .idx of Megatron next to it; a deck reads raw numbers "
                        "with `format`",
                        magic, llmc_magic_2, llmc_magic_4));
}

}  // namespace

std::vector<ExaminedFile> examine_token_files(const std::vector<std::string>& paths,
                                              TokenFormat format) {
  Findings found;
  std::vector<ExaminedFile> examined(paths.size());
  for (std::size_t i = 0; i < paths.size(); ++i)
    if (auto finding = examine(paths[i], format, examined[i]))
      found.add(*std::move(finding));
  found.settle();
  return examined;
}

std::unique_ptr<TokenStream> open_token_files(const TokenFiles& found,
                                              std::int64_t vocabulary,
                                              std::int32_t end_of_text) {
  std::int64_t tokens = 0, highest = 0;
  StoredHash hash;
  for (const TokenFile& file : found.files) {
    hash.add(static_cast<std::uint64_t>(file.width)).add(file.hash);
    tokens += file.tokens;
    highest = std::max(highest, std::int64_t{1} << std::min(8 * file.width, 62));
  }
  auto description = fmt::format("{} tokens in {} files, {}", tokens, found.files.size(),
                                 found.files.empty() ? "none" : found.files.front().path);
  auto stream = std::make_unique<FileTokens>(
      found.files, TokenStream::Facts{tokens, std::min(vocabulary, highest), hash.value(),
                                      std::move(description)});
  if (found.marks.empty())
    return stream;
  return std::make_unique<MarkedTokens>(std::move(stream), found.marks, end_of_text);
}

}  // namespace trireme::tokens
