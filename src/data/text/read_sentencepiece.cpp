// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cstring>

#include <fmt/format.h>

#include "text/json_file.hpp"
#include "text/readers.hpp"

namespace trireme::text {
namespace {

// The message ModelProto of google/sentencepiece src/sentencepiece_model.proto, and what is read of
// the messages in it. A field that a file lacks has its default.
struct Piece {
  std::string_view name;
  float score = 0;
  std::uint64_t type = 1;
};
enum PieceType : std::uint64_t {
  normal_piece = 1,
  unknown_piece,
  control_piece,
  defined_piece,
  unused_piece,
  byte_piece
};

struct Model {
  std::vector<Piece> pieces;
  std::uint64_t type = 1, byte_fallback = 0, space_last = 0;
  std::uint64_t begin = 1, end = 2;  ///< ids; negative as 64 bits: none
  std::string_view character_map;
  std::uint64_t space_first = 1, fewer_spaces = 1, writes_spaces = 1;
};

/// Calls take(field, number, bytes), with one of the two, for each field of a message of the file.
template <class Take>
void each_field(const FileText& file, std::string_view message, const Take& take) {
  const auto refuse = [&] {
    throw UserError({file.path},
                    fmt::format("at byte {}: this is not a model of SentencePiece, or the file was "
                                "truncated",
                                message.data() - file.bytes.data()));
  };
  const auto taken = [&](std::uint64_t bytes) {
    if (bytes > message.size())
      refuse();
    const std::string_view front = message.substr(0, bytes);
    message.remove_prefix(bytes);
    return front;
  };
  const auto varint = [&] {
    std::uint64_t number = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto next = static_cast<unsigned char>(taken(1).front());
      number |= std::uint64_t{next & 0x7FU} << shift;
      if (next < 0x80)
        return number;
    }
    refuse();
    return number;
  };
  while (!message.empty()) {
    const std::uint64_t tag = varint(), type = tag & 7U;
    if (type == 0) {
      take(tag >> 3U, varint(), "");
    } else if (type == 2) {
      take(tag >> 3U, 0, taken(varint()));
    } else if (type == 1 || type == 5) {
      const std::string_view bytes = taken(type == 1 ? 8 : 4);
      std::uint64_t number = 0;
      std::memcpy(&number, bytes.data(), bytes.size());  // little-endian
      take(tag >> 3U, number, "");
    } else {
      refuse();
    }
  }
}

/// Numbers by 100 times the field of their message in ModelProto, and their own field in that.
constexpr std::pair<std::uint64_t, std::uint64_t Model::*> numbers[] = {
    {203, &Model::type},         {224, &Model::space_last},   {235, &Model::byte_fallback},
    {241, &Model::begin},        {242, &Model::end},          {303, &Model::space_first},
    {304, &Model::fewer_spaces}, {305, &Model::writes_spaces}};

Model read_model(const FileText& file) {
  Model model;
  each_field(file, file.bytes, [&](std::uint64_t part, std::uint64_t, std::string_view message) {
    if (part == 1)
      model.pieces.emplace_back();
    if (part < 1 || part > 3)
      return;
    const auto take = [&](std::uint64_t field, std::uint64_t number, std::string_view text) {
      const std::uint64_t place = 100 * part + field;
      if (place == 101)
        model.pieces.back().name = text;
      else if (place == 102)
        model.pieces.back().score = std::bit_cast<float>(static_cast<std::uint32_t>(number));
      else if (place == 103)
        model.pieces.back().type = number;
      else if (place == 302)
        model.character_map = text;
      for (const auto& [known, member_of] : numbers)
        if (place == known)
          model.*member_of = number;
    };
    each_field(file, message, take);
  });
  return model;
}

void expect_supported(const FileText& file, const Model& model) {
  constexpr std::string_view types[] = {"unigram", "bpe", "word", "char"};
  const auto expect = [&](bool holds, std::string_view what) {
    if (!holds)
      throw UserError({file.path}, fmt::format("{}, which is not supported: only models of type "
                                               "bpe with byte_fallback and without normalization "
                                               "are read",
                                               what));
  };
  if (model.type != 2)
    expect(false, fmt::format("its model_type is {}",
                              model.type >= 1 && model.type <= 4 ? types[model.type - 1] : "new"));
  expect(model.byte_fallback == 1, "byte_fallback is false");
  expect(model.character_map.empty(), "its normalizer maps characters");
  expect(model.fewer_spaces == 0, "remove_extra_whitespaces is true");
  expect(model.writes_spaces == 1, "escape_whitespaces is false");
  expect(model.space_last == 0, "treat_whitespace_as_suffix is true");
}

/// For each piece the place of its score among those of all normal pieces, the highest first.
std::vector<std::uint32_t> ranks_of(const std::vector<Piece>& pieces) {
  std::vector<float> scores;
  for (const Piece& piece : pieces) scores.push_back(piece.type == normal_piece ? piece.score : 0);
  std::vector<float> sorted = scores;
  std::ranges::sort(sorted, std::ranges::greater());
  std::vector<std::uint32_t> ranks;
  for (const float score : scores)
    ranks.push_back(static_cast<std::uint32_t>(
        std::ranges::lower_bound(sorted, score, std::ranges::greater()) - sorted.begin()));
  return ranks;
}

}  // namespace

Vocabulary read_sentencepiece(const FileText& file) {
  const Model model = read_model(file);
  expect_supported(file, model);
  Vocabulary vocabulary;
  vocabulary.characters = true;
  vocabulary.prefix = model.space_first != 0 ? SpacePrefix::text : SpacePrefix::none;
  vocabulary.rule = MergeRule::scored;
  vocabulary.ranks = ranks_of(model.pieces);
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    const auto& [name, score, type] = model.pieces[id];
    VocabularyEntry entry{with_spaces(name), type == unknown_piece || type == control_piece,
                          type == defined_piece};
    const auto value = byte_named(name);
    std::string problem = type == unused_piece || type > byte_piece || !(score <= 0 || score > 0)
                              ? "its type or score is not supported"
                          : type == byte_piece && !value ? "its name is not that of a byte"
                                                         : "";
    if (entry.special)
      entry.bytes = name;
    if (type == byte_piece)
      entry = {std::string(1, value.value_or('?')), false, false, true};
    if (problem.empty())
      problem = put_token(vocabulary, static_cast<std::int64_t>(id), std::move(entry));
    if (!problem.empty())
      throw UserError({file.path}, fmt::format("piece {}, '{}': {}", id, shortened(name), problem));
  }
  const auto special = [&](std::uint64_t id) {
    const auto token = static_cast<Token>(id);
    return vocabulary.has_special(static_cast<std::int64_t>(id)) ? std::optional(token)
                                                                 : std::nullopt;
  };
  vocabulary.begin_of_text = special(model.begin);
  if (const auto end = special(model.end))
    vocabulary.ends_of_text = {*end};
  vocabulary.end_of_text = vocabulary.begin_of_text ? vocabulary.begin_of_text : special(model.end);
  return vocabulary;
}

}  // namespace trireme::text
