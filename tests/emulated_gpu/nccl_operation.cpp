// SPDX-License-Identifier: Apache-2.0
#include "emulated_gpu/nccl_operation.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/dtype.hpp"

namespace emulated::nccl {
namespace {

using trireme::Bf16;

/// TRIREME_EMULATED_NCCL_FAULT=KIND:RANK:N injects a fault into the N-th operation (from 0) of a
/// rank. KIND is `fail`, a connection that breaks, or `stall`, a rank that never arrives.
bool has_fault(const char* kind, int rank, std::uint64_t number) {
  const char* told = std::getenv("TRIREME_EMULATED_NCCL_FAULT");
  return told != nullptr && std::string(told) == std::string(kind) + ":" + std::to_string(rank) +
                                                     ":" + std::to_string(number);
}

float sum(float a, float b) {
  return a + b;
}
Bf16 sum(Bf16 a, Bf16 b) {
  return Bf16(static_cast<float>(a) + static_cast<float>(b));
}
std::int64_t sum(std::int64_t a, std::int64_t b) {  // wraps around
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

template <class T>
void add_into(std::byte* to, const std::byte* from, std::size_t count) {
  auto* sums = reinterpret_cast<T*>(to);
  const auto* terms = reinterpret_cast<const T*>(from);
  for (std::size_t i = 0; i < count; ++i) sums[i] = sum(sums[i], terms[i]);
}

void add_into(ncclDataType_t type, std::byte* to, const std::byte* from, std::size_t count) {
  if (type == ncclFloat32)
    add_into<float>(to, from, count);
  else if (type == ncclBfloat16)
    add_into<Bf16>(to, from, count);
  else
    add_into<std::int64_t>(to, from, count);
}

template <class Piece>
std::uint64_t total(const std::vector<Piece>& pieces) {
  std::uint64_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.bytes;
  return bytes;
}

/// Calls copy(memory in a piece, offset in the range, bytes) for the range [begin, begin + bytes)
/// of the concatenated pieces, as far as they reach.
template <class Piece, class Copy>
void for_part(const std::vector<Piece>& pieces,
              std::size_t begin,
              std::size_t bytes,
              const Copy& copy) {
  std::size_t at = 0;
  for (const Piece& piece : pieces) {
    const std::size_t from = std::max(at, begin), to = std::min(at + piece.bytes, begin + bytes);
    if (from < to)
      copy(piece.at + (from - at), from - begin, to - from);
    at += piece.bytes;
  }
}

std::string text(const Call& call) {
  return std::string(name(static_cast<Kind>(call.kind))) + " of " + std::to_string(call.count) +
         " elements of type " + std::to_string(call.type);
}

}  // namespace

const char* name(Kind kind) {
  return kind == Kind::reduce_scatter ? "ReduceScatter"
         : kind == Kind::all_gather   ? "AllGather"
         : kind == Kind::group        ? "Group"
                                      : "AllReduce";
}

std::size_t bytes_of(ncclDataType_t type) {
  return type == ncclFloat32    ? 4
         : type == ncclBfloat16 ? 2
         : type == ncclInt64    ? 8
         : type == ncclInt8     ? 1
                                : 0;
}

bool Operation::advance() {
  const Segment& segment = *at_.segment;
  if (*at_.aborted)
    return true;
  if (stage_ != Stage::failed && segment.aborted().load(std::memory_order_acquire) != 0)
    fail(ncclRemoteError, "a remote process exited or there was a network error");
  if (stage_ == Stage::post)
    post();
  if (stage_ == Stage::meet && segment.all(&Seat::posted, number_))
    meet();
  // A slot may be written only after all ranks have read the data of the previous round.
  if (stage_ == Stage::write && segment.all(&Seat::read, *at_.rounds))
    write();
  if (stage_ == Stage::gather && segment.all(&Seat::written, *at_.rounds))
    gather();
  if (stage_ == Stage::leave && segment.all(&Seat::read, *at_.rounds))
    return true;
  return false;
}

void Operation::fail(ncclResult_t status, std::string words) {
  stage_ = Stage::failed;
  at_.fail(status, std::move(words));
}

void Operation::post() {
  const std::uint64_t index = (*at_.operations)++;
  const int rank = at_.segment->rank();
  if (has_fault("fail", rank, index))
    return fail(ncclSystemError, "socketProgress: Connection closed by remote peer (told to fail)");
  if (has_fault("stall", rank, index)) {
    stage_ = Stage::failed;
    return;
  }
  number_ = index + 1;
  Seat& own = at_.segment->own();
  own.call = {static_cast<std::int32_t>(arguments_.kind), arguments_.type, arguments_.count};
  for (std::size_t r = 0; r < arguments_.sends.size(); ++r)
    own.sends[r] = total(arguments_.sends[r]);
  own.posted.store(number_, std::memory_order_release);
  stage_ = Stage::meet;
}

void Operation::meet() {
  const Segment& segment = *at_.segment;
  const Call& first = segment.seat(0).call;
  for (int r = 1; r < segment.size(); ++r)
    if (const Call& other = segment.seat(r).call; !(other == first))
      return fail(ncclInvalidUsage, "operation " + std::to_string(number_ - 1) + " is " +
                                        text(first) + " on rank 0 and " + text(other) +
                                        " on rank " + std::to_string(r));
  count_ = arguments_.count;
  stage_ = Stage::write;
  if (arguments_.kind == Kind::group)
    meet_group();
}

void Operation::meet_group() {
  const Segment& segment = *at_.segment;
  for (int from = 0; from < segment.size(); ++from) {
    const std::uint64_t sent = segment.seat(from).sends[static_cast<std::size_t>(segment.rank())];
    if (const auto expected = total(arguments_.receives[static_cast<std::size_t>(from)]);
        sent != expected)
      return fail(ncclInvalidUsage, "rank " + std::to_string(from) + " sends " +
                                        std::to_string(sent) + " bytes to rank " +
                                        std::to_string(segment.rank()) + ", which receives " +
                                        std::to_string(expected));
    for (int to = 0; to < segment.size(); ++to)
      count_ =
          std::max<std::size_t>(count_, segment.seat(from).sends[static_cast<std::size_t>(to)]);
  }
}

/// In a reduce-scatter or a group, a slot holds a piece for every rank.
std::size_t Operation::pieces_per_slot() const {
  return arguments_.kind == Kind::reduce_scatter || arguments_.kind == Kind::group
             ? static_cast<std::size_t>(at_.segment->size())
             : 1;
}

std::size_t Operation::piece() const {
  const std::size_t most = slot_bytes / bytes_of(arguments_.type) / pieces_per_slot();
  return std::min(most, count_ - done_);
}

void Operation::write() {
  const std::size_t element = bytes_of(arguments_.type), count = piece();
  std::byte* slot = at_.segment->slot(at_.segment->rank());
  for (std::size_t p = 0; p < pieces_per_slot() && count > 0; ++p) {
    std::byte* to = slot + p * count * element;
    if (arguments_.kind == Kind::group)
      for_part(arguments_.sends[p], done_, count,
               [&](const std::byte* from, std::size_t offset, std::size_t bytes) {
                 std::memcpy(to + offset, from, bytes);
               });
    else
      std::memcpy(to, arguments_.send + (p * count_ + done_) * element, count * element);
  }
  ++*at_.rounds;
  at_.segment->own().written.store(*at_.rounds, std::memory_order_release);
  stage_ = Stage::gather;
}

void Operation::gather() {
  const Segment& segment = *at_.segment;
  const std::size_t element = bytes_of(arguments_.type), count = piece();
  const auto mine =
      pieces_per_slot() > 1 ? static_cast<std::size_t>(segment.rank()) * count * element : 0;
  for (int r = 0; r < segment.size() && count > 0; ++r) {
    const std::byte* from = segment.slot(r) + mine;
    if (arguments_.kind == Kind::group) {
      for_part(arguments_.receives[static_cast<std::size_t>(r)], done_, count,
               [&](std::byte* to, std::size_t offset, std::size_t bytes) {
                 std::memcpy(to, from + offset, bytes);
               });
      continue;
    }
    std::byte* to = arguments_.receive + done_ * element;
    if (arguments_.kind == Kind::all_gather)
      std::memcpy(to + static_cast<std::size_t>(r) * count_ * element, from, count * element);
    else if (r == 0)
      std::memcpy(to, from, count * element);
    else
      add_into(arguments_.type, to, from, count);
  }
  segment.own().read.store(*at_.rounds, std::memory_order_release);
  done_ += count;
  stage_ = done_ < count_ ? Stage::write : Stage::leave;
}

}  // namespace emulated::nccl
