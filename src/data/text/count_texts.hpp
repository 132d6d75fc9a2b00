// SPDX-License-Identifier: Apache-2.0
// The pieces of texts, counted on any number of threads and ranks.
//
// The texts come as blocks, which are shared out to ranks and threads; counts are added up on the
// first rank. Nothing of the result depends on how many there are. The caller states where they
// may be cut into blocks: where a piece ends in any case (pieces.hpp, 3.), and between texts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/counts.hpp"
#include "text/pieces.hpp"

namespace trireme::text {

/// Texts in blocks that are counted in any order. No piece reaches from one block into another.
class TextBlocks {
 public:
  virtual ~TextBlocks() = default;
  [[nodiscard]] virtual std::size_t size() const = 0;
  /// Of what is read for the block, for progress.
  [[nodiscard]] virtual std::int64_t bytes(std::size_t block) const = 0;
  /// Calls `use` with the texts of the block, one after the other. Called from several threads, and
  /// again in every pass, with the same texts.
  virtual void read(std::size_t block, const std::function<void(std::string_view)>& use) const = 0;
};

/// Messages between ranks; collective.
class RankExchange {
 public:
  virtual ~RankExchange() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  /// In place, over all ranks.
  virtual void sum(std::span<std::int64_t> values) = 0;
  virtual void max(std::span<std::int64_t> values) = 0;
  /// Every rank's bytes, in rank order, on the first rank; nothing on the others.
  virtual std::vector<std::string> gather(const std::string& bytes) = 0;
  /// `action`, which may throw on some ranks; then it throws on all.
  virtual void together(const std::function<void()>& action) = 0;
};
/// For one rank.
class NoExchange final : public RankExchange {
 public:
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }
  void sum(std::span<std::int64_t> /*values*/) override {}
  void max(std::span<std::int64_t> /*values*/) override {}
  std::vector<std::string> gather(const std::string& bytes) override { return {bytes}; }
  void together(const std::function<void()>& action) override { action(); }
};

/// Of this rank, in this pass over the corpus.
struct CountProgress {
  int pass = 1;
  int classes_done = 0;  ///< of PieceCounts::classes, in earlier passes
  std::int64_t bytes = 0, total_bytes = 0;
};

struct CountRequest {
  Pattern pattern = Pattern::gpt2;
  int threads = 1;
  std::int64_t memory_bytes = std::int64_t{4} << 30U;  ///< of each rank
  /// Called about once a second by the calling thread.
  std::function<void(const CountProgress&)> progress;
};

struct CountedCorpus {
  KeptPieces kept;  ///< on the first rank
  int passes = 0;
  std::int64_t bytes = 0, pieces = 0, too_long = 0;  ///< of text, on all ranks together
};

/// Collective; the same texts on every rank. Throws what reading them throws, and UserError when
/// the memory is too little.
CountedCorpus count_texts(const TextBlocks& texts,
                          const CountRequest& request,
                          RankExchange& ranks);

}  // namespace trireme::text
