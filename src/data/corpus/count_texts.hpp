// SPDX-License-Identifier: Apache-2.0
// The pieces of text files, counted on any number of threads and ranks: of the texts that `tokenize`
// reads, through the same reader.
//
// The files are cut into blocks, where `tokenize` may cut them (tokens/documents.hpp), which are
// distributed over ranks and threads; a compressed file is a single block. The first rank adds up
// the counts.
//
// 1. No piece reaches from one block into another: the result does not depend on the size of blocks
//    and on the numbers of ranks and threads.
// 2. A file whose size has changed since it was listed is an error, never a shorter text.
//
// The counts are exact, in 64 bits, in bounded memory.
//
// Pieces fall into 256 classes by their hash. A table that has no room for another piece drops the
// upper half of its classes with their counts and continues with the rest, whose counts stay exact.
// The dropped classes are counted in another pass over the corpus, by a table that begins with
// them. So memory decides the number of passes but not the counts.
//
// 1. Tables of parts of a corpus are added up in any order: the sum has the counts of the whole, of
//    the classes that all of them kept.
// 2. Of the sum of all passes, KeptPieces keeps the pieces whose count is at least a threshold: 1,
//    or the lowest with which they fit into memory. It depends on the corpus and on that memory
//    only.
// 3. Pieces longer than most_piece_bytes are not counted, but their number is known.
//
// Threads: a table is one thread's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/hash.hpp"
#include "base/stage_progress.hpp"

#include "comm/control/world.hpp"

#include "text/piece_cache.hpp"
#include "text/pieces.hpp"
#include "tokens/sources.hpp"
#include "tokens/text_format.hpp"

namespace trireme::corpus {

inline constexpr std::size_t most_piece_bytes = 65536;

class PieceCounts {
 public:
  static constexpr int classes = 256;

  /// Counts the classes from `first_class` on, in about `most_bytes` of memory.
  PieceCounts(int first_class, std::int64_t most_bytes);

  void add(std::string_view piece, const char* end_of_text) {
    ++pieces_;
    add_count(piece, end_of_text, 1);
  }
  /// Adds the other's counts, down to the lower end_class() of the two.
  void add(const PieceCounts& other);
  /// Adds what packed() wrote. Throws ContractError when it is not that.
  void add_packed(std::string_view packed);
  /// Forgets the classes from `end` on.
  void drop_from(int end);

  [[nodiscard]] int first_class() const { return first_; }
  /// The first class that was dropped.
  [[nodiscard]] int end_class() const { return end_; }
  [[nodiscard]] std::int64_t size() const;
  /// Pieces seen so far, of all classes; and those that were too long to count.
  [[nodiscard]] std::int64_t pieces() const { return pieces_; }
  [[nodiscard]] std::int64_t too_long() const { return too_long_; }
  /// About how many bytes packed() of all classes has.
  [[nodiscard]] std::int64_t packed_bytes() const;

  /// Calls take(piece, count, hash).
  template <class Take>
  void for_each(Take&& take) const {
    for (const Slot& slot : slots_)
      if (slot.count != 0)
        take(slot.key.piece(), slot.count, slot.key.hash());
    for (const auto& [piece, count] : long_) take(piece, count, hash_bytes(piece));
  }
  /// The counts of the classes first ... end - 1, for another process of the same program.
  [[nodiscard]] std::string packed(int first, int end) const;

 private:
  struct Slot {
    text::PieceKey key{};
    std::uint64_t count = 0;  ///< 0: empty
  };
  struct LongHash {
    std::size_t operator()(const std::string& piece) const { return hash_bytes(piece); }
  };
  static int class_of(std::uint64_t hash) { return static_cast<int>(hash >> 20U & 255U); }
  [[nodiscard]] std::size_t slot_of(std::uint64_t hash) const {
    return static_cast<std::size_t>(hash >> shift_);
  }
  void add_count(std::string_view piece, const char* end_of_text, std::uint64_t count) {
    if (piece.size() <= text::PieceKey::most_bytes)
      add_short(text::PieceKey::of(piece.data(), piece.size(), end_of_text), count);
    else
      add_long(piece, count);
  }
  void add_short(const text::PieceKey& key, std::uint64_t count) {
    const std::uint64_t hash = key.hash();
    for (std::size_t at = slot_of(hash);; at = (at + 1) & (slots_.size() - 1)) {
      Slot& slot = slots_[at];
      if (slot.count != 0 && slot.key == key) {
        slot.count += count;
        return;
      }
      if (slot.count == 0)
        return add_new(key, hash, count, at);
    }
  }
  void add_new(const text::PieceKey& key, std::uint64_t hash, std::uint64_t count, std::size_t at);
  void add_long(std::string_view piece, std::uint64_t count);
  void make_room();
  void rebuild(std::size_t slots);
  [[nodiscard]] std::int64_t bytes() const;

  int first_, end_ = classes;
  std::int64_t most_bytes_;
  unsigned shift_ = 0;
  std::vector<Slot> slots_;
  std::size_t used_ = 0;
  std::unordered_map<std::string, std::uint64_t, LongHash> long_;
  std::int64_t long_bytes_ = 0;
  std::int64_t pieces_ = 0, too_long_ = 0;
};

struct CountedPiece {
  std::string bytes;
  std::uint64_t count = 0;
};

/// The pieces that a vocabulary is trained on.
class KeptPieces {
 public:
  /// `most_bytes` bounds the memory of training on them.
  explicit KeptPieces(std::int64_t most_bytes) : most_bytes_(most_bytes) {}

  /// Takes the counts of classes that it has not seen.
  void add(const PieceCounts& counts);

  [[nodiscard]] const std::vector<CountedPiece>& pieces() const { return pieces_; }
  /// The least count of a piece that is kept; how many distinct ones have less, and how often those
  /// occur together.
  [[nodiscard]] std::uint64_t threshold() const { return threshold_; }
  [[nodiscard]] std::int64_t dropped() const { return dropped_; }
  [[nodiscard]] std::uint64_t dropped_occurrences() const { return dropped_occurrences_; }

 private:
  void raise_threshold();

  std::int64_t most_bytes_, bytes_ = 0;
  std::vector<CountedPiece> pieces_;
  std::uint64_t threshold_ = 1, dropped_occurrences_ = 0;
  std::int64_t dropped_ = 0;
};

struct CountRequest {
  text::Pattern pattern = text::Pattern::gpt2;
  int threads = 1;
  std::int64_t memory_bytes = std::int64_t{4} << 30U;  ///< of each rank
  std::int64_t block_bytes = std::int64_t{4} << 20U;
  StageProgress* progress = nullptr;  ///< null: nothing is said
};

struct CountedCorpus {
  KeptPieces kept;  ///< on the first rank
  int passes = 0;
  std::int64_t bytes = 0, pieces = 0, too_long = 0;  ///< of text, on all ranks together
};

/// Collective; the same files on every rank. Throws UserError for damaged compression, for what is
/// not a JSON line with the field, and when the memory is too little; StorageError.
CountedCorpus count_texts(const std::vector<tokens::TextFile>& files,
                          const tokens::TextFormat& format,
                          const CountRequest& request,
                          comm::World& world);

}  // namespace trireme::corpus
