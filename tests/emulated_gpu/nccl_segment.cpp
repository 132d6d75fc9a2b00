// SPDX-License-Identifier: Apache-2.0
#include "emulated_gpu/nccl_segment.hpp"

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace emulated::nccl {
namespace {

constexpr std::size_t head_bytes = std::size_t{64} << 10U;
static_assert(sizeof(SharedState) <= head_bytes);
constexpr std::size_t all_bytes = head_bytes + most_ranks * slot_bytes;  // allocated on first write

std::runtime_error failure(const std::string& what) {
  return std::runtime_error(what + ": " + std::strerror(errno));
}

void* map(const std::string& name) {
  const int file = shm_open(name.c_str(), O_CREAT | O_RDWR, 0600);
  if (file < 0)
    throw failure("shm_open " + name);
  void* memory = MAP_FAILED;
  if (ftruncate(file, static_cast<off_t>(all_bytes)) == 0)
    memory = mmap(nullptr, all_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED)
    throw failure("mapping " + name);
  return memory;
}

}  // namespace

Segment::Segment(std::string name, int rank, int size, int gpu, std::uint64_t host)
    : name_(std::move(name)),
      rank_(rank),
      size_(size),
      memory_(map(name_)),
      state_(static_cast<SharedState*>(memory_)) {
  Seat& seat = own();
  seat.size = size;
  seat.gpu = gpu;
  seat.host = host;
  if (seat.taken.exchange(1, std::memory_order_acq_rel) != 0) {
    munmap(memory_, all_bytes);
    throw std::runtime_error("rank " + std::to_string(rank) + " is there twice");
  }
}

Segment::~Segment() {
  munmap(memory_, all_bytes);
}

std::byte* Segment::slot(int rank) const {
  return static_cast<std::byte*>(memory_) + head_bytes +
         static_cast<std::size_t>(rank) * slot_bytes;
}

void Segment::unlink() const {
  shm_unlink(name_.c_str());
}

}  // namespace emulated::nccl
