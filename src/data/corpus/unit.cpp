// SPDX-License-Identifier: Apache-2.0
#include "corpus/unit.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/error.hpp"
#include "files/input_file.hpp"
#include "files/output_file.hpp"

#include "tokens/documents.hpp"
#include "tokens/segment.hpp"
#include "tokens/token_files.hpp"
#include "tokens/token_index.hpp"

namespace trireme::corpus {
namespace {

using Json = nlohmann::ordered_json;

constexpr text::Token newline = '\n';

using Header = std::array<std::int32_t, tokens::llmc_header_bytes / sizeof(std::int32_t)>;

Header header_of(int width, std::int64_t tokens) {
  Header header{};
  header[0] = width == 2 ? tokens::llmc_magic_2 : tokens::llmc_magic_4;
  header[1] = width == 2 ? 1 : 7;
  header[2] = static_cast<std::int32_t>(tokens);
  return header;
}

/// A shard that is being written; there is no file before its first token.
class Shard {
 public:
  Shard(std::string path, const text::Tokenizer& tokenizer, bool after_text)
      : path_(std::move(path)),
        width_(tokens::width_of(tokenizer.vocabulary())),
        ends_lines_(tokenizer.kind() == "bytes"),
        last_(after_text ? 0 : newline),
        end_of_text_(tokenizer.end_of_text().value_or(tokens::no_end_of_text)) {
    result_.file = std::filesystem::path(path_).filename().string();
  }

  void begin_document() {
    ++result_.documents;
    if (ends_lines_ && last_ != newline)
      add(std::array{newline}, 0);
  }
  void add(std::span<const text::Token> tokens, std::size_t bytes) {
    result_.bytes += static_cast<std::int64_t>(bytes);
    if (tokens.empty())
      return;
    if (!draft_) {
      draft_.emplace(path_);
      const Header place{};  // its values come last
      draft_->file().write(std::as_bytes(std::span(place)));
    }
    for (const text::Token token : tokens) {
      if (std::cmp_greater(token, index_.highest)) {
        index_.highest = static_cast<std::uint64_t>(token);
        index_.highest_at = result_.tokens;
      }
      if (token == end_of_text_)
        index_.documents.push_back(result_.tokens);
      ++result_.tokens;
    }
    if (result_.tokens > std::numeric_limits<std::int32_t>::max())
      throw UserError(Place{path_},
                      "the text of this shard gives more than 2^31 tokens, which llm.c's format "
                      "cannot count: give a smaller --shard-bytes, or split the largest compressed "
                      "file");
    last_ = tokens.back();
    packed_.clear();
    tokens::pack_tokens(tokens, width_, packed_);
    draft_->file().write(packed_);
    hashes_.add(packed_);
  }
  tokens::ManifestShard finish() {
    if (!draft_) {
      ::unlink(path_.c_str());  // of a start before, if anything
      ::unlink(tokens::index_of_shard(path_).c_str());
      return std::move(result_);
    }
    index_.blocks = hashes_.finish();
    const auto index_header = tokens::header_of(
        {.path = path_, .tokens = result_.tokens, .width = width_}, index_, end_of_text_);
    result_.hash = index_header.hash;
    tokens::write_index(tokens::index_of_shard(path_), index_header, index_);
    const Header header = header_of(width_, result_.tokens);
    draft_->file().rewrite_front(std::as_bytes(std::span(header)));
    draft_->commit();
    return std::move(result_);
  }

 private:
  std::string path_;
  int width_;
  bool ends_lines_;
  text::Token last_, end_of_text_;
  tokens::ManifestShard result_;
  tokens::TokenIndex index_;
  std::optional<files::StagedFile> draft_;
  tokens::BlockHashes hashes_;
  std::vector<std::byte> packed_;
};

/// Calls take(piece, tokens, validates) for every piece of a range's text.
template <class Take>
tokens::TextNotes encode_range(const Range& range, const TokenizeRequest& request, Take&& take) {
  const bool plain = request.format.field.empty();
  const double fraction = request.validation_fraction;
  bool validates =
      plain && range.begin > 0 &&
      tokens::validates(tokens::front_of(range.path, request.format, range.begin), fraction);
  tokens::Documents documents(range.path, request.format, range.begin, range.end);
  tokens::encode_documents(
      documents, range.path, *request.tokenizer,
      [&](const tokens::TextPiece& piece, const std::vector<text::Token>& tokens) {
        if (piece.begins_document) {
          // A document that the range cuts off may have a longer front.
          const bool cut = plain && piece.text.size() < tokens::document_front &&
                           piece.at + std::ssize(piece.text) == range.end;
          validates = cut ? tokens::validates(
                                tokens::front_of(range.path, request.format, piece.at), fraction)
                          : tokens::validates(piece.text, fraction);
        }
        take(piece, tokens, validates);
      });
  return documents.notes();
}

Json json_of(const tokens::ManifestShard& shard) {
  return {{"file", shard.file},
          {"tokens", shard.tokens},
          {"documents", shard.documents},
          {"bytes", shard.bytes},
          {"hash", shard.hash}};
}

tokens::ManifestShard shard_of(const Json& json) {
  return {json.at("file").get<std::string>(), json.at("tokens").get<std::int64_t>(),
          json.at("documents").get<std::int64_t>(), json.at("bytes").get<std::int64_t>(),
          json.at("hash").get<std::uint64_t>()};
}

}  // namespace

std::int64_t Unit::bytes() const {
  std::int64_t sum = 0;
  for (const Range& range : ranges) sum += range.bytes;
  return sum;
}

std::vector<Unit> units_of(const tokens::TextSources& sources, const TokenizeRequest& request) {
  std::vector<Unit> units(1);
  const auto ends_open = [&](const tokens::TextFile& file) {
    if (file.compressed || !request.format.field.empty())
      return true;  // not known without reading it
    std::byte last{};
    files::InputFile(file.path).read(file.size - 1, std::span(&last, 1));
    return last != static_cast<std::byte>(newline);
  };
  const tokens::TextFile* before = nullptr;
  const auto add = [&](Range range) {
    units.back().ranges.push_back(std::move(range));
    if (units.back().bytes() >= request.shard_bytes)
      units.emplace_back();
  };
  for (const tokens::TextFile& file : sources.files) {
    if (units.back().ranges.empty() && before != nullptr)
      units.back().after_text = ends_open(*before);
    before = &file;
    if (file.compressed || file.size <= request.shard_bytes) {
      add({file.path, 0, -1, file.size});
      continue;
    }
    std::int64_t begin = 0;
    for (std::int64_t at = request.shard_bytes; begin < file.size; at += request.shard_bytes) {
      const std::int64_t end =
          at >= file.size ? file.size : tokens::boundary(file.path, request.format, at);
      if (end > begin)
        add({file.path, begin, end, end - begin});
      begin = std::max(begin, end);
    }
  }
  if (units.back().ranges.empty())
    units.pop_back();
  return units;
}

std::string to_json(const UnitResult& result) {
  return Json{{"train", json_of(result.train)},
              {"validation", json_of(result.validation)},
              {"notes", Json::parse(tokens::to_json(result.notes))}}
      .dump();
}

std::vector<UnitResult> result_from_json(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    return {{shard_of(json.at("train")), shard_of(json.at("validation")),
             tokens::notes_from_json(json.at("notes").dump())}};
  } catch (const nlohmann::json::exception&) {
    return {};
  }
}

std::string shard_name(const std::string& prefix, const char* set, std::size_t number) {
  return fmt::format("{}_{}_{:06}.bin", prefix, set, number);
}

std::pair<std::size_t, bool> unit_of_shard(const std::string& name) {
  const std::size_t dash = name.rfind('_');
  return {std::stoull(name.substr(dash + 1)), name.substr(0, dash).ends_with("_val")};
}

bool is_whole(const TokenizeRequest& request, const tokens::ManifestShard& shard) {
  const auto path = std::filesystem::path(request.output).parent_path() / shard.file;
  if (shard.tokens == 0)
    return true;
  if (!std::filesystem::exists(std::filesystem::symlink_status(path)))
    return false;
  const int width = tokens::width_of(request.tokenizer->vocabulary());
  const Header wanted = header_of(width, shard.tokens);
  Header found{};
  const files::InputFile file(path.string());
  const std::size_t bytes = file.read_some(0, std::as_writable_bytes(std::span(found)));
  if (bytes > 0 && found[0] != wanted[0])
    throw UserError(
        Place{path.string()},
        "this file has the name of a token shard and is none. Move it to another place, "
        "or remove it, and start again");
  return file.size() == tokens::llmc_header_bytes + shard.tokens * width && found == wanted;
}

UnitResult make_unit(const Unit& unit,
                     std::size_t number,
                     const TokenizeRequest& request,
                     const std::function<void(std::int64_t)>& report) {
  Shard train(shard_name(request.output, "train", number), *request.tokenizer, unit.after_text);
  Shard validation(shard_name(request.output, "val", number), *request.tokenizer, unit.after_text);
  UnitResult result;
  std::int64_t done = 0;
  for (const Range& range : unit.ranges) {
    result.notes.add(
        encode_range(range, request, [&](const auto& piece, const auto& tokens, bool validates) {
          Shard& shard = validates ? validation : train;
          if (piece.begins_document)
            shard.begin_document();
          shard.add(tokens, piece.text.size());
        }));
    report(done += range.bytes);
  }
  result.train = train.finish();
  result.validation = validation.finish();
  return result;
}

std::vector<UnitDocument> documents_of(const Unit& unit, const TokenizeRequest& request) {
  const bool ends_lines = request.tokenizer->kind() == "bytes";
  std::array<std::int64_t, 2> tokens_of{};
  std::array<text::Token, 2> last{unit.after_text ? 0 : newline, unit.after_text ? 0 : newline};
  std::vector<UnitDocument> found;
  for (const Range& range : unit.ranges)
    encode_range(range, request, [&](const auto& piece, const auto& tokens, bool validates) {
      const std::size_t set = validates ? 1 : 0;
      if (piece.begins_document || piece.at == range.begin)
        found.push_back({range.path, piece.at, tokens_of[set], validates});
      if (piece.begins_document && ends_lines && std::exchange(last[set], newline) != newline)
        ++tokens_of[set];
      tokens_of[set] += std::ssize(tokens);
      last[set] = tokens.empty() ? last[set] : tokens.back();
    });
  return found;
}

}  // namespace trireme::corpus
