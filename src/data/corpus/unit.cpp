// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "base/error.hpp"
#include "files/descriptor.hpp"
#include "files/output_file.hpp"
#include "files/path.hpp"

#include "corpus/tokenize.hpp"
#include "tokens/documents.hpp"
#include "tokens/token_files.hpp"
#include "tokens/token_index.hpp"

namespace trireme::corpus {
namespace {

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
        end_of_text_(tokenizer.end_of_text().value_or(tokens::no_end_of_text)),
        indexer_(width_, end_of_text_) {
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
    result_.tokens += std::ssize(tokens);
    if (result_.tokens > std::numeric_limits<std::int32_t>::max())
      throw UserError(Place{path_},
                      "the text of this shard gives more than 2^31 tokens, which llm.c's format "
                      "cannot count: give a smaller --shard-bytes, or split the largest compressed "
                      "file");
    last_ = tokens.back();
    packed_.clear();
    tokens::pack_tokens(tokens, width_, packed_);
    draft_->file().write(packed_);
    indexer_.add(packed_);
  }
  /// Adds it to `set`, if it has a token.
  void finish(std::vector<tokens::ManifestShard>& set) {
    if (!draft_) {
      ::unlink(path_.c_str());  // of a start before, if anything
      ::unlink(tokens::index_of_shard(path_).c_str());
      return;
    }
    const tokens::TokenIndex index = indexer_.finish();
    const auto index_header = tokens::header_of(
        {.path = path_, .tokens = result_.tokens, .width = width_}, index, end_of_text_);
    result_.hash = index_header.hash;
    tokens::write_index(tokens::index_of_shard(path_), index_header, index);
    const Header header = header_of(width_, result_.tokens);
    draft_->file().rewrite_front(std::as_bytes(std::span(header)));
    draft_->commit();
    set.push_back(std::move(result_));
  }

 private:
  std::string path_;
  int width_;
  bool ends_lines_;
  text::Token last_, end_of_text_;
  tokens::ManifestShard result_;
  tokens::Indexer indexer_;
  std::optional<files::StagedFile> draft_;
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

std::pair<std::size_t, bool> unit_of_shard(const std::string& name) {
  const std::size_t dash = name.rfind('_');
  return {std::stoull(name.substr(dash + 1)), name.substr(0, dash).ends_with("_val")};
}

bool is_whole(const TokenizeRequest& request, const tokens::Manifest& manifest) {
  const int width = tokens::width_of(request.tokenizer->vocabulary());
  for (const auto* set : {&manifest.train, &manifest.validation})
    for (const tokens::ManifestShard& shard : *set) {
      const auto path = std::filesystem::path(request.output).parent_path() / shard.file;
      if (!files::exists(path))
        return false;
      const Header wanted = header_of(width, shard.tokens);
      Header found{};
      const files::InputFile file(path.string());
      const std::size_t bytes = file.read_some(0, std::as_writable_bytes(std::span(found)));
      const auto has = [&](const Header& header) {
        return found == header &&
               file.size() == tokens::llmc_header_bytes + std::int64_t{header[2]} * width;
      };
      if (has(wanted))
        continue;
      if (bytes > 0 && (found[0] != wanted[0] || has(header_of(width, found[2]))))
        throw UserError(
            Place{path.string()},
            "this file has the name of a token shard and is another file. Move it to another "
            "place, or remove it, and start again");
      return false;
    }
  return true;
}

tokens::Manifest make_unit(const Unit& unit,
                           std::size_t number,
                           const TokenizeRequest& request,
                           const std::function<void(std::int64_t)>& report) {
  const auto shard_of = [&](const char* set) {
    return Shard(fmt::format("{}_{}_{:06}.bin", request.output, set, number), *request.tokenizer,
                 unit.after_text);
  };
  Shard train = shard_of("train"), validation = shard_of("val");
  tokens::Manifest made;
  std::int64_t done = 0;
  for (const Range& range : unit.ranges) {
    made.notes.add(
        encode_range(range, request, [&](const auto& piece, const auto& tokens, bool validates) {
          Shard& shard = validates ? validation : train;
          if (piece.begins_document)
            shard.begin_document();
          shard.add(tokens, piece.text.size());
        }));
    report(done += range.bytes);
  }
  train.finish(made.train);
  validation.finish(made.validation);
  return made;
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
