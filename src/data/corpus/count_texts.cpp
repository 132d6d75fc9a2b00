// SPDX-License-Identifier: Apache-2.0
#include "corpus/count_texts.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/threads.hpp"
#include "files/descriptor.hpp"

#include "comm/control/together.hpp"

#include "tokens/documents.hpp"

namespace trireme::corpus {
namespace {

/// Bytes of packed counts that all ranks together send at once.
constexpr std::int64_t parcel_bytes = std::int64_t{128} << 20U;

struct Block {
  const tokens::TextFile* file;
  std::int64_t begin, end;  ///< end -1: to the end of the file

  /// That are read for it, for progress.
  [[nodiscard]] std::int64_t bytes() const { return (end < 0 ? file->size : end) - begin; }
};

class Counting {
 public:
  Counting(const std::vector<tokens::TextFile>& files,
           const tokens::TextFormat& format,
           const CountRequest& request,
           comm::World& world)
      : format_(format), request_(request), world_(world) {
    std::size_t number = 0;
    const auto add = [&](const Block& block) {
      if (number++ % static_cast<std::size_t>(world.size()) !=
          static_cast<std::size_t>(world.rank()))
        return;
      blocks_.push_back(block);
      total_bytes_ += block.bytes();
    };
    for (const tokens::TextFile& file : files)
      if (file.compressed)
        add({&file, 0, -1});
      else
        for (std::int64_t begin = 0; begin < file.size; begin += request.block_bytes)
          add({&file, begin, std::min(begin + request.block_bytes, file.size)});
  }

  CountedCorpus count() {
    CountedCorpus corpus{.kept = KeptPieces(request_.memory_bytes)};
    for (int first = 0; first < PieceCounts::classes;) {
      const std::string stage =
          ++corpus.passes == 1 ? "counting pieces"
                               : fmt::format("counting pieces, pass {} from {} % of them on",
                                             corpus.passes, 100 * first / PieceCounts::classes);
      std::unique_ptr<PieceCounts> counts;
      comm::together(world_, [&] { counts = count_share(first, stage); });
      if (first == 0) {
        std::int64_t totals[] = {text_bytes_, counts->pieces(), counts->too_long()};
        world_.sum(totals);
        corpus.bytes = totals[0];
        corpus.pieces = totals[1];
        corpus.too_long = totals[2];
      }
      add_others(*counts);
      if (world_.rank() == 0)
        corpus.kept.add(*counts);
      first = counts->end_class();
    }
    return corpus;
  }

 private:
  std::unique_ptr<PieceCounts> count_share(int first_class, const std::string& stage) {
    const std::int64_t half = request_.memory_bytes / 2;
    next_ = 0;
    bytes_ = text_bytes_ = 0;
    std::vector<std::unique_ptr<PieceCounts>> counts;
    std::vector<std::future<void>> threads;  // which end before the counts go
    counts.reserve(static_cast<std::size_t>(request_.threads));
    threads.reserve(counts.capacity());
    for (int t = 0; t < request_.threads; ++t)
      counts.push_back(std::make_unique<PieceCounts>(first_class, half / request_.threads));
    for (const auto& mine : counts)
      threads.push_back(start_async("count-texts", [&] { count_blocks(*mine); }));
    for (const auto& thread : threads)
      while (thread.wait_for(std::chrono::seconds(1)) != std::future_status::ready)
        if (request_.progress != nullptr)
          request_.progress->report(stage, static_cast<double>(bytes_),
                                    static_cast<double>(total_bytes_));
    for (auto& thread : threads) thread.get();
    auto sum = std::make_unique<PieceCounts>(first_class, half);
    for (auto& mine : counts) {
      sum->add(*mine);
      mine.reset();
    }
    return sum;
  }

  void count_blocks(PieceCounts& counts) {
    try {
      for (std::size_t i = next_++; i < blocks_.size(); i = next_++) {
        count_block(blocks_[i], counts);
        bytes_ += blocks_[i].bytes();
      }
    } catch (...) {
      next_ = blocks_.size();  // for the other threads
      throw;
    }
  }

  void count_block(const Block& block, PieceCounts& counts) {
    const std::string& path = block.file->path;
    if (const files::InputFile now(path); now.size() != block.file->size)
      throw StorageError(
          "file system", "read " + path,
          fmt::format("it has {} bytes and had {} when it was listed: it was changed "
                      "while it was in use",
                      now.size(), block.file->size));
    std::int64_t begin = 0, end = -1;
    if (block.end >= 0) {
      begin = tokens::boundary(path, format_, block.begin, block.end);
      if (begin >= block.end)
        return;  // what is here belongs to an earlier block
      end = tokens::boundary(path, format_, block.end);
    }
    tokens::Documents documents(path, format_, begin, end);
    for (tokens::TextPiece piece; documents.next(piece);) {
      const char* const text_end = piece.text.data() + piece.text.size();
      text::split(request_.pattern, piece.text,
                  [&](std::string_view part) { counts.add(part, text_end); });
      text_bytes_ += std::ssize(piece.text);
    }
  }
  void add_others(PieceCounts& counts) {
    std::int64_t last = -counts.end_class();
    world_.max({&last, 1});
    const int end = static_cast<int>(-last), first = counts.first_class();
    counts.drop_from(end);
    std::int64_t all_bytes = counts.packed_bytes();
    world_.sum({&all_bytes, 1});
    const std::int64_t parcels =
        std::clamp<std::int64_t>(all_bytes / parcel_bytes + 1, 1, end - first);
    for (std::int64_t p = 0; p < parcels; ++p) {
      const auto border = [&](std::int64_t parcel) {
        return first + static_cast<int>(parcel * (end - first) / parcels);
      };
      const std::vector<std::string> all =
          world_.gather(world_.rank() == 0 ? "" : counts.packed(border(p), border(p + 1)));
      comm::together(world_, [&] {
        for (const std::string& packed : all)
          if (!packed.empty())
            counts.add_packed(packed);
      });
    }
    last = world_.rank() == 0 ? -counts.end_class() : -PieceCounts::classes;
    world_.max({&last, 1});
    counts.drop_from(static_cast<int>(-last));
  }

  const tokens::TextFormat& format_;
  const CountRequest& request_;
  comm::World& world_;
  std::vector<Block> blocks_;     ///< of this rank
  std::int64_t total_bytes_ = 0;  ///< of these blocks
  std::atomic<std::size_t> next_{0};
  std::atomic<std::int64_t> bytes_{0}, text_bytes_{0};  ///< in this pass
};

}  // namespace

CountedCorpus count_texts(const std::vector<tokens::TextFile>& files,
                          const tokens::TextFormat& format,
                          const CountRequest& request,
                          comm::World& world) {
  return Counting(files, format, request, world).count();
}

}  // namespace trireme::corpus
