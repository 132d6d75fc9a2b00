// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/packing.hpp"
#include "base/text.hpp"

#include "corpus/count_texts.hpp"

namespace trireme::corpus {
namespace {

/// Size of an entry of the table of long pieces, without its bytes.
constexpr std::int64_t long_overhead = 96;

/// Bytes to train on a piece: symbols, their places in the lists of pairs, pairs (train.cpp).
std::int64_t training_bytes(std::size_t bytes) {
  return 40 * static_cast<std::int64_t>(bytes + 1) + 64;
}

/// Counts as they are sent between ranks.
using Packed = std::vector<std::pair<std::string, std::uint64_t>>;

}  // namespace

PieceCounts::PieceCounts(int first_class, std::int64_t most_bytes)
    : first_(first_class), most_bytes_(most_bytes) {
  rebuild(1024);
}

std::int64_t PieceCounts::size() const {
  return static_cast<std::int64_t>(used_) + std::ssize(long_);
}

std::int64_t PieceCounts::bytes() const {
  return static_cast<std::int64_t>(slots_.size() * sizeof(Slot)) + long_bytes_;
}

std::int64_t PieceCounts::packed_bytes() const {
  return static_cast<std::int64_t>(used_) * 24 + long_bytes_;
}

void PieceCounts::rebuild(std::size_t slots) {
  std::vector<Slot> old(slots);
  old.swap(slots_);
  shift_ = 64U - static_cast<unsigned>(std::countr_zero(slots));
  used_ = 0;
  for (const Slot& slot : old)
    if (slot.count != 0 && class_of(slot.key.hash()) < end_) {
      std::size_t at = slot_of(slot.key.hash());
      while (slots_[at].count != 0) at = (at + 1) & (slots_.size() - 1);
      slots_[at] = slot;
      ++used_;
    }
}

void PieceCounts::drop_from(int end) {
  if (end >= end_)
    return;
  end_ = end;
  rebuild(slots_.size());
  std::erase_if(long_, [&](const auto& entry) {
    const bool given_up = class_of(hash_bytes(entry.first)) >= end_;
    if (given_up)
      long_bytes_ -= static_cast<std::int64_t>(entry.first.size()) + long_overhead;
    return given_up;
  });
}

void PieceCounts::make_room() {
  if (end_ - first_ == 1)
    throw UserError(
        fmt::format("{} are not enough for 1/256 of the distinct pieces of this text. "
                    "Increase --memory",
                    bytes_text(most_bytes_)));
  drop_from(first_ + (end_ - first_) / 2);
}

void PieceCounts::add_new(const text::PieceKey& key,
                          std::uint64_t hash,
                          std::uint64_t count,
                          std::size_t at) {
  if (class_of(hash) >= end_ || class_of(hash) < first_)
    return;
  if (used_ * 8 < slots_.size() * 5) {
    slots_[at] = {key, count};
    ++used_;
    return;
  }
  // While it grows there are both the old slots and twice as many new ones.
  if (bytes() + static_cast<std::int64_t>(2 * slots_.size() * sizeof(Slot)) <= most_bytes_)
    rebuild(2 * slots_.size());
  else
    make_room();
  add_short(key, count);
}

void PieceCounts::add_long(std::string_view piece, std::uint64_t count) {
  if (piece.size() > most_piece_bytes) {
    too_long_ += static_cast<std::int64_t>(count);
    return;
  }
  const int own = class_of(hash_bytes(piece));
  if (own >= end_ || own < first_)
    return;
  const auto [at, fresh] = long_.try_emplace(std::string(piece), 0);
  at->second += count;
  if (!fresh)
    return;
  long_bytes_ += static_cast<std::int64_t>(piece.size()) + long_overhead;
  while (bytes() > most_bytes_) make_room();
}

void PieceCounts::add(const PieceCounts& other) {
  drop_from(other.end_);
  pieces_ += other.pieces_;
  too_long_ += other.too_long_;
  for (const Slot& slot : other.slots_)
    if (slot.count != 0)
      add_short(slot.key, slot.count);
  for (const auto& [piece, count] : other.long_) add_long(piece, count);
}

std::string PieceCounts::packed(int first, int end) const {
  Packed pieces;
  for_each([&](std::string_view piece, std::uint64_t count, std::uint64_t hash) {
    if (class_of(hash) >= first && class_of(hash) < end)
      pieces.emplace_back(piece, count);
  });
  return pack(pieces);
}

void PieceCounts::add_packed(std::string_view packed) {
  for (const auto& [piece, count] : unpack<Packed>(packed))
    add_count(piece, piece.data() + piece.size(), count);
}

void KeptPieces::add(const PieceCounts& counts) {
  counts.for_each([this](std::string_view piece, std::uint64_t count, auto) {
    if (count < threshold_) {
      ++dropped_;
      dropped_occurrences_ += count;
      return;
    }
    pieces_.push_back({std::string(piece), count});
    bytes_ += training_bytes(piece.size());
    if (bytes_ > most_bytes_)
      raise_threshold();
  });
}

void KeptPieces::raise_threshold() {
  std::map<std::uint64_t, std::int64_t, std::greater<>> bytes_of_count;
  for (const CountedPiece& piece : pieces_)
    bytes_of_count[piece.count] += training_bytes(piece.bytes.size());
  std::int64_t bytes = 0;
  std::uint64_t threshold = bytes_of_count.begin()->first + 1;
  for (const auto& [count, more] : bytes_of_count) {
    if (bytes + more > most_bytes_)
      break;
    bytes += more;
    threshold = count;
  }
  threshold_ = threshold;
  bytes_ = bytes;
  std::erase_if(pieces_, [this](const CountedPiece& piece) {
    if (piece.count >= threshold_)
      return false;
    ++dropped_;
    dropped_occurrences_ += piece.count;
    return true;
  });
}

}  // namespace trireme::corpus
