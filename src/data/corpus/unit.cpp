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
#include "files/output_file.hpp"

#include "tokens/documents.hpp"
#include "tokens/segment.hpp"
#include "tokens/token_files.hpp"

namespace trireme::corpus {
namespace {

using Json = nlohmann::ordered_json;

/// A shard that is being written; there is no file before its first token.
class Shard {
 public:
  Shard(std::string path, int width) : path_(std::move(path)), width_(width) {
    result_.file = std::filesystem::path(path_).filename().string();
  }

  void begin_document() { ++result_.documents; }
  void add(std::span<const text::Token> tokens, std::size_t bytes) {
    result_.bytes += static_cast<std::int64_t>(bytes);
    if (tokens.empty())
      return;
    if (!draft_) {
      draft_.emplace(path_);
      draft_->file().write(header());  // its place; the number of tokens comes last
    }
    result_.tokens += std::ssize(tokens);
    if (result_.tokens > std::numeric_limits<std::int32_t>::max())
      throw UserError(Place{path_},
                      "the text of this shard gives more than 2^31 tokens, which llm.c's format "
                      "cannot count: give a smaller --shard-bytes, or split the largest compressed "
                      "file");
    packed_.clear();
    tokens::pack_tokens(tokens, width_, packed_);
    draft_->file().write(packed_);
    hashes_.add(packed_);
  }
  tokens::ManifestShard finish() {
    if (!draft_) {
      ::unlink(path_.c_str());  // of a start before, if anything
      return std::move(result_);
    }
    result_.hash = tokens::hash_of_blocks(hashes_.finish(), result_.tokens * width_);
    draft_->file().rewrite_front(header());
    draft_->commit();
    return std::move(result_);
  }

 private:
  std::span<const std::byte> header() {
    header_[0] = width_ == 2 ? tokens::llmc_magic_2 : tokens::llmc_magic_4;
    header_[1] = width_ == 2 ? 1 : 7;
    header_[2] = static_cast<std::int32_t>(result_.tokens);
    return std::as_bytes(std::span(header_));
  }

  std::string path_;
  int width_;
  tokens::ManifestShard result_;
  std::optional<files::StagedFile> draft_;
  tokens::BlockHashes hashes_;
  std::vector<std::byte> packed_;
  std::array<std::int32_t, tokens::llmc_header_bytes / sizeof(std::int32_t)> header_{};
};

class UnitMaker {
 public:
  UnitMaker(const TokenizeRequest& request, std::size_t number)
      : request_(request),
        train_(shard_name(request.output, "train", number), width(request)),
        validation_(shard_name(request.output, "val", number), width(request)) {}

  void add(const Range& range) {
    const bool plain = request_.format.field.empty();
    const double fraction = request_.validation_fraction;
    bool checks =
        plain && range.begin > 0 &&
        tokens::validates(tokens::front_of(range.path, request_.format, range.begin), fraction);
    tokens::Documents documents(range.path, request_.format, range.begin, range.end);
    tokens::encode_documents(
        documents, range.path, *request_.tokenizer,
        [&](const tokens::TextPiece& piece, const std::vector<text::Token>& tokens) {
          if (piece.begins_document) {
            // A document that the range cuts off may have a longer front.
            const bool cut = plain && piece.text.size() < tokens::document_front &&
                             piece.at + std::ssize(piece.text) == range.end;
            checks = cut ? tokens::validates(
                               tokens::front_of(range.path, request_.format, piece.at), fraction)
                         : tokens::validates(piece.text, fraction);
          }
          Shard& shard = checks ? validation_ : train_;
          if (piece.begins_document)
            shard.begin_document();
          shard.add(tokens, piece.text.size());
        });
    result_.notes.add(documents.notes());
  }
  UnitResult finish() {
    result_.train = train_.finish();
    result_.validation = validation_.finish();
    return std::move(result_);
  }

 private:
  static int width(const TokenizeRequest& request) {
    return tokens::width_of(request.tokenizer->vocabulary());
  }

  const TokenizeRequest& request_;
  Shard train_, validation_;
  UnitResult result_;
};

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
  const auto add = [&](Range range) {
    units.back().ranges.push_back(std::move(range));
    if (units.back().bytes() >= request.shard_bytes)
      units.emplace_back();
  };
  for (const tokens::TextFile& file : sources.files) {
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

UnitResult make_unit(const Unit& unit,
                     std::size_t number,
                     const TokenizeRequest& request,
                     const std::function<void(std::int64_t)>& report) {
  UnitMaker maker(request, number);
  std::int64_t done = 0;
  for (const Range& range : unit.ranges) {
    maker.add(range);
    report(done += range.bytes);
  }
  return maker.finish();
}

}  // namespace trireme::corpus
