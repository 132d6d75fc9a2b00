// SPDX-License-Identifier: Apache-2.0
#include "corpus/train.hpp"

#include <array>
#include <limits>
#include <optional>
#include <queue>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "files/new_directory.hpp"

#include "text/merging.hpp"
#include "text/unicode_ranges.hpp"
#include "text/write.hpp"

namespace trireme::corpus {
namespace {

using CellIndex = std::uint32_t;  ///< of a cell

constexpr text::Token between_pieces = -1;
constexpr text::Token inside_a_token = -2;

/// Places of a pair, in increasing order. Those where it is no more are passed over when it is
/// merged: a pair gets all of its places in the step that makes the later one of its two ids, and
/// loses some afterwards.
struct PairEntry {
  std::int64_t count = 0;
  std::vector<CellIndex> places;

  void add(CellIndex place, std::int64_t its_count) {
    count += its_count;
    places.push_back(place);
  }
};

/// What a step finds on one side of the places that it merges, by the neighbour's id.
struct Neighbour {
  PairEntry gained;       ///< the pair that it makes with the new token
  std::int64_t lost = 0;  ///< of the pair that it made with the old one
};
using Neighbours = std::unordered_map<text::Token, Neighbour>;

/// All pieces, one cell per byte. A token is in as many cells as it has bytes: its id in the
/// first and the last of them, inside_a_token between. Pieces have a cell of between_pieces before
/// and after.
class Trainer {
 public:
  explicit Trainer(const std::vector<CountedPiece>& pieces) {
    for (int id = 0; id < 256; ++id)
      known_.insert(tokens_.emplace_back(1, static_cast<char>(text::byte_of_gpt2_id(id))));
    add_bytes(pieces);
    count_first_pairs();
  }
  /// The next merge, or nothing when no pair is left.
  std::optional<text::MergePair> step() {
    while (!candidates_.empty()) {
      const Candidate top = candidates_.top();
      candidates_.pop();
      const auto found = pairs_.find(top.pair);
      if (found == pairs_.end())
        continue;
      if (found->second.count != top.count) {  // it has lost some since; counts never grow
        candidates_.push({found->second.count, top.pair});
        continue;
      }
      const PairEntry best = std::move(found->second);
      pairs_.erase(found);
      const auto left = static_cast<text::Token>(top.pair >> 32U);
      const auto right = static_cast<text::Token>(top.pair & 0xFFFFFFFFU);
      if (const auto [at, fresh] = known_.insert(bytes_of(left) + bytes_of(right)); fresh)
        tokens_.push_back(*at);
      else
        continue;
      merge(best, left, right);
      return text::MergePair{left, right};
    }
    return std::nullopt;
  }
  [[nodiscard]] const std::string& bytes_of(text::Token token) const {
    return tokens_[static_cast<std::size_t>(token)];
  }

 private:
  struct Candidate {
    std::int64_t count;
    std::uint64_t pair;
    /// Below: merged later.
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };
  void add_bytes(const std::vector<CountedPiece>& pieces) {
    std::array<text::Token, 256> ids;
    for (int id = 0; id < 256; ++id) ids[text::byte_of_gpt2_id(id)] = id;
    std::size_t cells = 1;
    for (const CountedPiece& piece : pieces) cells += piece.bytes.size() + 1;
    TRIREME_EXPECT(cells < std::numeric_limits<CellIndex>::max(), "{} bytes of distinct pieces",
                   cells);
    cells_.reserve(cells);
    piece_of_cell_.reserve(cells);
    const auto add = [this](text::Token token) {
      cells_.push_back(token);
      piece_of_cell_.push_back(static_cast<std::uint32_t>(counts_.size()));
    };
    add(between_pieces);
    for (const CountedPiece& piece : pieces) {
      if (piece.bytes.size() < 2)
        continue;
      for (const char c : piece.bytes) add(ids[static_cast<unsigned char>(c)]);
      add(between_pieces);
      counts_.push_back(static_cast<std::int64_t>(piece.count));
    }
  }
  void count_first_pairs() {
    for (std::size_t at = 0; at + 1 < cells_.size(); ++at)
      if (cells_[at] >= 0 && cells_[at + 1] >= 0)
        pairs_[text::pair_of(cells_[at], cells_[at + 1])].add(static_cast<CellIndex>(at),
                                                              counts_[piece_of_cell_[at]]);
    for (const auto& [pair, entry] : pairs_) candidates_.push({entry.count, pair});
  }
  /// Of the newest token, which is made of the pair.
  void merge(const PairEntry& best, text::Token left, text::Token right) {
    const auto made = static_cast<text::Token>(tokens_.size() - 1);
    const CellIndex left_length = length(left), right_length = length(right);
    Neighbours before_it, after_it;
    for (const CellIndex at : best.places) {
      const CellIndex middle = at + left_length, end = middle + right_length;
      if (cells_[at] != left || cells_[middle] != right)
        continue;
      const std::int64_t count = counts_[piece_of_cell_[at]];
      if (const text::Token before = cells_[at - 1]; before >= 0) {
        Neighbour& neighbour = before_it[before];
        if (before == made)  // which made its neighbour `left` in this step
          after_it[left].gained.count -= count;
        else
          neighbour.lost += count;
        neighbour.gained.add(at - length(before), count);
      }
      if (const text::Token after = cells_[end]; after >= 0) {
        Neighbour& neighbour = after_it[after];
        neighbour.lost += count;
        neighbour.gained.add(at, count);
      }
      cells_[middle - 1] = cells_[middle] = inside_a_token;
      cells_[at] = cells_[end - 1] = made;
    }
    for (auto& [before, neighbour] : before_it) {
      lose(text::pair_of(before, left), neighbour.lost);
      put(text::pair_of(before, made), std::move(neighbour.gained));
    }
    for (auto& [after, neighbour] : after_it) {
      lose(text::pair_of(right, after), neighbour.lost);
      put(text::pair_of(made, after), std::move(neighbour.gained));
    }
  }
  void lose(std::uint64_t pair, std::int64_t count) {
    const auto found = pairs_.find(pair);
    if (found == pairs_.end())
      return;
    found->second.count -= count;
    if (found->second.count <= 0)
      pairs_.erase(found);
  }
  void put(std::uint64_t pair, PairEntry entry) {
    if (entry.count <= 0)
      return;
    candidates_.push({entry.count, pair});
    pairs_.emplace(pair, std::move(entry));
  }
  [[nodiscard]] CellIndex length(text::Token token) const {
    return static_cast<CellIndex>(bytes_of(token).size());
  }

  std::vector<text::Token> cells_;
  std::vector<std::uint32_t> piece_of_cell_;
  std::vector<std::int64_t> counts_;  ///< of pieces
  std::vector<std::string> tokens_;
  std::unordered_set<std::string> known_;               ///< the tokens again
  std::unordered_map<std::uint64_t, PairEntry> pairs_;  ///< those that occur
  std::priority_queue<Candidate> candidates_;
};

}  // namespace

text::Vocabulary train_vocabulary(const std::vector<CountedPiece>& pieces,
                                  const TrainRequest& request) {
  const std::int64_t special = std::ssize(request.special_tokens);
  const std::int64_t merges = request.vocabulary - 256 - special;
  TRIREME_EXPECT(merges >= 0 && request.vocabulary <= most_vocabulary,
                 "{} ids and {} special tokens", request.vocabulary, special);
  text::Vocabulary vocabulary;
  vocabulary.pattern = request.pattern;
  Trainer trainer(pieces);
  for (text::Token id = 0; id < 256; ++id)
    vocabulary.tokens.push_back({trainer.bytes_of(id), false});
  while (std::ssize(vocabulary.merges) < merges) {
    const auto merge = trainer.step();
    if (!merge)
      break;
    vocabulary.merges.push_back(*merge);
    vocabulary.tokens.push_back(
        {trainer.bytes_of(static_cast<text::Token>(vocabulary.tokens.size())), false});
    if (request.progress != nullptr && vocabulary.merges.size() % 256 == 0)
      request.progress->report("merging pairs", static_cast<double>(vocabulary.merges.size()),
                               static_cast<double>(merges));
  }
  for (const std::string& name : request.special_tokens) vocabulary.tokens.push_back({name, true});
  vocabulary.end_of_text = text::find_end_of_text(vocabulary);
  return vocabulary;
}

std::string training_json(const text::Vocabulary& vocabulary, const CountedCorpus& corpus) {
  const nlohmann::ordered_json root = {{"pattern", word(vocabulary.pattern)},
                                       {"unicode", text::unicode_version},
                                       {"ids", vocabulary.tokens.size()},
                                       {"bytes", corpus.bytes},
                                       {"pieces", corpus.pieces},
                                       {"distinct_pieces_kept", corpus.kept.pieces().size()},
                                       {"least_count_kept", corpus.kept.threshold()},
                                       {"distinct_pieces_dropped", corpus.kept.dropped()},
                                       {"occurrences_dropped", corpus.kept.dropped_occurrences()},
                                       {"pieces_too_long", corpus.too_long}};
  return root.dump(1) + "\n";
}

double bytes_per_token(const text::Vocabulary& vocabulary,
                       const std::vector<CountedPiece>& pieces) {
  const auto tokenizer = text::make_tokenizer(vocabulary, "the trained vocabulary");
  std::vector<text::Token> tokens;
  double bytes = 0, all = 0;
  for (const CountedPiece& piece : pieces) {
    tokens.clear();
    tokenizer->encode(piece.bytes, tokens);
    bytes += static_cast<double>(piece.count) * static_cast<double>(piece.bytes.size());
    all += static_cast<double>(piece.count) * static_cast<double>(tokens.size());
  }
  return all > 0 ? bytes / all : 0;
}

void write_tokenizer(const std::string& directory,
                     const text::Vocabulary& vocabulary,
                     const std::string& facts) {
  files::NewDirectory made(directory);
  made.write("tokenizer.json", text::tokenizer_json(vocabulary));
  made.write("vocab.json", text::vocab_json(vocabulary));
  made.write("merges.txt", text::merges_txt(vocabulary));
  made.write("training.json", facts);
  made.commit();
}

}  // namespace trireme::corpus
