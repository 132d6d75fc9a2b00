// SPDX-License-Identifier: Apache-2.0
#include "corpus/train.hpp"

#include <array>
#include <bit>
#include <limits>
#include <memory>
#include <optional>
#include <queue>
#include <unordered_set>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "files/new_directory.hpp"

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
  static constexpr std::uint64_t none = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t pair = none;
  std::int64_t count = 0;
  const CellIndex* places = nullptr;
  std::size_t num_places = 0;
};

std::uint64_t pair_of(text::Token left, text::Token right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32U | static_cast<std::uint32_t>(right);
}

/// Open addressing; pairs that occur nowhere any more are dropped when it grows.
class PairTable {
 public:
  PairTable() : entries_(1U << 12U) {}
  PairEntry* find(std::uint64_t pair) {
    PairEntry& entry = entries_[slot_of(pair)];
    return entry.pair == pair ? &entry : nullptr;
  }
  void put(const PairEntry& entry) {
    if (10 * (used_ + 1) > 6 * entries_.size())
      grow();
    PairEntry& place = entries_[slot_of(entry.pair)];
    used_ += place.pair == PairEntry::none ? 1 : 0;
    place = entry;
  }

 private:
  [[nodiscard]] std::size_t slot_of(std::uint64_t pair) const {
    const std::size_t mask = entries_.size() - 1;
    const auto shift = static_cast<unsigned>(64 - std::countr_zero(entries_.size()));
    auto at = static_cast<std::size_t>((pair * 0x9E3779B97F4A7C15U) >> shift);
    while (entries_[at].pair != pair && entries_[at].pair != PairEntry::none) at = (at + 1) & mask;
    return at;
  }
  void grow() {
    std::size_t alive = 0;
    for (const PairEntry& entry : entries_) alive += entry.count > 0 ? 1 : 0;
    std::vector<PairEntry> old(std::bit_ceil(4 * alive + (1U << 12U)));
    old.swap(entries_);
    used_ = alive;
    for (const PairEntry& entry : old)
      if (entry.count > 0)
        entries_[slot_of(entry.pair)] = entry;
  }

  std::vector<PairEntry> entries_;
  std::size_t used_ = 0;
};

/// What a step finds on one side of the places that it merges, by the neighbour's id.
class Neighbours {
 public:
  void resize(std::size_t ids) {
    gained_.resize(ids);
    lost_.resize(ids);
    tally_.resize(ids);
    seen_.resize(ids);
  }
  /// The new token has this neighbour: a pair of `count` at `place`.
  void gain(text::Token neighbour, CellIndex place, std::int64_t count) {
    touch(neighbour);
    gained_[index(neighbour)] += count;
    ++tally_[index(neighbour)];
    events_.push_back({neighbour, place});
  }
  /// Such a pair of this step is no more.
  void take_back(text::Token neighbour, std::int64_t count) { gained_[index(neighbour)] -= count; }
  /// The pair that the neighbour made with the old token is no more.
  void lose(text::Token neighbour, std::int64_t count) {
    touch(neighbour);
    lost_[index(neighbour)] += count;
  }

  /// Calls take(neighbour, lost, gained, places, number of places) for each neighbour, and forgets
  /// all. The places stay where they are.
  template <class Take>
  void finish(Take&& take) {
    auto* const places = events_.empty() ? nullptr : keep(events_.size());
    std::size_t begin = 0;
    for (const text::Token id : touched_) begin += std::exchange(tally_[index(id)], begin);
    for (const Event& event : events_) places[tally_[index(event.neighbour)]++] = event.place;
    std::size_t from = 0;
    for (const text::Token id : touched_) {
      const std::size_t i = index(id), to = tally_[i];
      take(id, lost_[i], gained_[i], places + from, to - from);
      from = to;
      gained_[i] = lost_[i] = 0;
      tally_[i] = 0;
      seen_[i] = false;
    }
    touched_.clear();
    events_.clear();
  }

 private:
  struct Event {
    text::Token neighbour;
    CellIndex place;
  };
  static std::size_t index(text::Token id) { return static_cast<std::size_t>(id); }
  void touch(text::Token id) {
    if (!seen_[index(id)]) {
      seen_[index(id)] = true;
      touched_.push_back(id);
    }
  }
  CellIndex* keep(std::size_t count) {
    kept_.push_back(std::make_unique<CellIndex[]>(count));
    return kept_.back().get();
  }

  std::vector<std::int64_t> gained_, lost_;
  std::vector<std::size_t> tally_;
  std::vector<bool> seen_;
  std::vector<text::Token> touched_;
  std::vector<Event> events_;
  std::vector<std::unique_ptr<CellIndex[]>> kept_;
};

/// All pieces, one cell per byte. A token is in as many cells as it has bytes: its id in the
/// first and the last of them, inside_a_token between. Pieces have a cell of between_pieces before
/// and after.
class Trainer {
 public:
  Trainer(const std::vector<CountedPiece>& pieces, std::int64_t vocabulary) : lengths_(256, 1) {
    for (int id = 0; id < 256; ++id)
      known_.insert(tokens_.emplace_back(1, static_cast<char>(text::byte_of_gpt2_id(id))));
    before_.resize(static_cast<std::size_t>(vocabulary));
    after_.resize(static_cast<std::size_t>(vocabulary));
    add_bytes(pieces);
    count_first_pairs();
  }
  /// The next merge, or nothing when no pair is left.
  std::optional<text::MergePair> step() {
    while (!candidates_.empty()) {
      const Candidate top = candidates_.top();
      candidates_.pop();
      PairEntry* entry = pairs_.find(top.pair);
      if (entry == nullptr || entry->count <= 0)
        continue;
      if (entry->count != top.count) {  // it has lost some since; counts never grow
        candidates_.push({entry->count, top.pair});
        continue;
      }
      const PairEntry best = *entry;
      entry->count = 0;
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
    std::vector<std::int64_t> counts(std::size_t{1} << 16U);
    std::vector<std::size_t> ends(counts.size());
    const auto for_each_pair = [this](auto&& take) {
      for (std::size_t at = 0; at + 1 < cells_.size(); ++at)
        if (cells_[at] >= 0 && cells_[at + 1] >= 0)
          take(at, static_cast<std::size_t>(cells_[at]) * 256 +
                       static_cast<std::size_t>(cells_[at + 1]));
    };
    for_each_pair([&](std::size_t at, std::size_t pair) {
      counts[pair] += counts_[piece_of_cell_[at]];
      ++ends[pair];
    });
    std::size_t begin = 0;
    for (std::size_t& end : ends) begin += std::exchange(end, begin);
    first_places_.resize(begin);
    for_each_pair([&](std::size_t at, std::size_t pair) {
      first_places_[ends[pair]++] = static_cast<CellIndex>(at);
    });
    begin = 0;
    for (std::size_t pair = 0; pair < counts.size(); ++pair) {
      put(pair_of(static_cast<text::Token>(pair / 256), static_cast<text::Token>(pair % 256)),
          counts[pair], first_places_.data() + begin, ends[pair] - begin);
      begin = ends[pair];
    }
  }
  void merge(const PairEntry& best, text::Token left, text::Token right) {
    const auto made = static_cast<text::Token>(lengths_.size());
    const CellIndex left_length = length(left), right_length = length(right);
    lengths_.push_back(left_length + right_length);
    for (std::size_t i = 0; i < best.num_places; ++i) {
      const CellIndex at = best.places[i], middle = at + left_length, end = middle + right_length;
      if (cells_[at] != left || cells_[middle] != right)
        continue;
      const std::int64_t count = counts_[piece_of_cell_[at]];
      if (const text::Token before = cells_[at - 1]; before >= 0) {
        if (before == made)  // which made its neighbour `left` in this step
          after_.take_back(left, count);
        else
          before_.lose(before, count);
        before_.gain(before, at - length(before), count);
      }
      if (const text::Token after = cells_[end]; after >= 0) {
        after_.lose(after, count);
        after_.gain(after, at, count);
      }
      cells_[middle - 1] = cells_[middle] = inside_a_token;
      cells_[at] = cells_[end - 1] = made;
    }
    before_.finish([&](text::Token before, std::int64_t lost, std::int64_t gained,
                       const CellIndex* places, std::size_t num_places) {
      if (lost != 0)
        lose(pair_of(before, left), lost);
      put(pair_of(before, made), gained, places, num_places);
    });
    after_.finish([&](text::Token after, std::int64_t lost, std::int64_t gained,
                      const CellIndex* places, std::size_t num_places) {
      if (lost != 0)
        lose(pair_of(right, after), lost);
      put(pair_of(made, after), gained, places, num_places);
    });
  }
  void lose(std::uint64_t pair, std::int64_t count) {
    if (PairEntry* entry = pairs_.find(pair))
      entry->count -= count;
  }
  void put(std::uint64_t pair,
           std::int64_t count,
           const CellIndex* places,
           std::size_t num_places) {
    if (count <= 0)
      return;
    pairs_.put({pair, count, places, num_places});
    candidates_.push({count, pair});
  }
  [[nodiscard]] CellIndex length(text::Token token) const {
    return lengths_[static_cast<std::size_t>(token)];
  }

  std::vector<text::Token> cells_;
  std::vector<std::uint32_t> piece_of_cell_;
  std::vector<std::int64_t> counts_;  ///< of pieces
  std::vector<CellIndex> lengths_;    ///< of tokens, in bytes
  std::vector<std::string> tokens_;
  std::unordered_set<std::string> known_;  ///< the tokens again
  PairTable pairs_;
  std::priority_queue<Candidate> candidates_;
  Neighbours before_, after_;
  std::vector<CellIndex> first_places_;
};

}  // namespace

text::Vocabulary train_vocabulary(const std::vector<CountedPiece>& pieces,
                                  const TrainRequest& request,
                                  const MergeProgress& progress) {
  const std::int64_t special = std::ssize(request.special_tokens);
  const std::int64_t merges = request.vocabulary - 256 - special;
  TRIREME_EXPECT(merges >= 0 && request.vocabulary <= most_vocabulary,
                 "{} ids and {} special tokens", request.vocabulary, special);
  text::Vocabulary vocabulary;
  vocabulary.pattern = request.pattern;
  Trainer trainer(pieces, request.vocabulary);
  for (text::Token id = 0; id < 256; ++id)
    vocabulary.tokens.push_back({trainer.bytes_of(id), false});
  while (std::ssize(vocabulary.merges) < merges) {
    const auto merge = trainer.step();
    if (!merge)
      break;
    vocabulary.merges.push_back(*merge);
    vocabulary.tokens.push_back(
        {trainer.bytes_of(static_cast<text::Token>(vocabulary.tokens.size())), false});
    if (progress && vocabulary.merges.size() % 256 == 0)
      progress(std::ssize(vocabulary.merges), merges);
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
