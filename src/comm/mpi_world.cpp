// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi_world.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <thread>
#include <utility>

#include "comm/mpi_check.hpp"
#include "comm/progress.hpp"
#include "comm/requests.hpp"

namespace trireme::comm {
namespace {

/// Counts are ints in MPI-3.1; longer messages go in pieces of this many bytes.
constexpr std::size_t piece_bytes = std::size_t{1} << 30U;
constexpr int longest_nap_us = 200;

std::string trimmed(const char* text, int length) {
  std::string words(text, static_cast<std::size_t>(std::max(length, 0)));
  while (!words.empty() && (words.back() == '\n' || words.back() == '\0' || words.back() == ' '))
    words.pop_back();
  return words;
}

int count_of(std::size_t elements) {
  TRIREME_EXPECT(elements <= static_cast<std::size_t>(std::numeric_limits<int>::max()),
                 "{} elements in one small exchange", elements);
  return static_cast<int>(elements);
}

}  // namespace

void check_mpi(int code, const char* statement, const char* file, int line) {
  if (code == MPI_SUCCESS) [[likely]]
    return;
  std::array<char, MPI_MAX_ERROR_STRING> words{};
  int length = 0;
  std::string reason;
  if (MPI_Error_string(code, words.data(), &length) == MPI_SUCCESS)
    reason = trimmed(words.data(), length);
  else
    reason = fmt::format("error code {}", code);
  throw CommError("MPI", statement, reason, file, line);
}

MpiScope::MpiScope(int& argc, char**& argv) {
  int provided = MPI_THREAD_SINGLE;
  TRIREME_MPI(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
  TRIREME_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  if (provided < MPI_THREAD_MULTIPLE)
    throw CommError("MPI", "MPI_Init_thread(MPI_THREAD_MULTIPLE)",
                    "this MPI library does not let several threads communicate", __FILE__,
                    __LINE__);
}

MpiScope::~MpiScope() {
  const int code = MPI_Finalize();
  if (code != MPI_SUCCESS)
    std::fprintf(stderr, "error: MPI_Finalize failed with code %d\n", code);
}

std::string mpi_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  TRIREME_MPI(MPI_Get_library_version(text.data(), &length));
  return trimmed(text.data(), length);
}

OwnedComm::OwnedComm(MPI_Comm comm) : comm_(comm) {
  if (comm_ != MPI_COMM_NULL)
    TRIREME_MPI(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
}

OwnedComm::~OwnedComm() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (comm_ != MPI_COMM_NULL && finalized == 0)
    MPI_Comm_free(&comm_);
}

OwnedComm::OwnedComm(OwnedComm&& other) noexcept
    : comm_(std::exchange(other.comm_, MPI_COMM_NULL)) {}

OwnedComm& OwnedComm::operator=(OwnedComm&& other) noexcept {
  std::swap(comm_, other.comm_);
  return *this;
}

OwnedComm OwnedComm::duplicate(MPI_Comm comm) {
  MPI_Comm copy = MPI_COMM_NULL;
  TRIREME_MPI(MPI_Comm_dup(comm, &copy));
  return OwnedComm(copy);
}

int OwnedComm::rank() const {
  int value = 0;
  TRIREME_MPI(MPI_Comm_rank(comm_, &value));
  return value;
}

int OwnedComm::size() const {
  int value = 0;
  TRIREME_MPI(MPI_Comm_size(comm_, &value));
  return value;
}

MpiWorld::MpiWorld() : comm_(OwnedComm::duplicate(MPI_COMM_WORLD)) {
  rank_ = comm_.rank();
  size_ = comm_.size();
  MPI_Comm node = MPI_COMM_NULL;
  TRIREME_MPI(MPI_Comm_split_type(comm(), MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
  const OwnedComm local(node);
  local_rank_ = local.rank();
  local_size_ = local.size();
  std::array<char, MPI_MAX_PROCESSOR_NAME> name{};
  int length = 0;
  TRIREME_MPI(MPI_Get_processor_name(name.data(), &length));
  host_ = trimmed(name.data(), length);
}

void MpiWorld::barrier() {
  TRIREME_MPI(MPI_Barrier(comm()));
}

// Polled with naps: MPI's own waiting would keep a core busy that a communication thread or another
// rank may need.
void MpiWorld::reduce(std::span<std::int64_t> values, MPI_Op op, const char* what) {
  MPI_Request request = MPI_REQUEST_NULL;
  TRIREME_MPI(MPI_Iallreduce(MPI_IN_PLACE, values.data(), count_of(values.size()), MPI_INT64_T, op,
                             comm(), &request));
  Patience patience(deadline_s_);
  while (!completed(request)) {
    if (const int nap_us = patience.turn(longest_nap_us); nap_us > 0)
      std::this_thread::sleep_for(std::chrono::microseconds(nap_us));
    if (patience.expired())
      throw CommError("communication", what,
                      fmt::format("another rank did not take part for {:.1f} s", patience.idle_s()),
                      __FILE__, __LINE__);
  }
}

void MpiWorld::sum(std::span<std::int64_t> values) {
  reduce(values, MPI_SUM, "a sum over the ranks");
}

void MpiWorld::max(std::span<std::int64_t> values) {
  reduce(values, MPI_MAX, "a maximum over the ranks");
}

std::vector<double> MpiWorld::gather_all(std::span<const double> values) {
  std::vector<double> all(values.size() * static_cast<std::size_t>(size_));
  const int count = count_of(values.size());
  TRIREME_MPI(
      MPI_Allgather(values.data(), count, MPI_DOUBLE, all.data(), count, MPI_DOUBLE, comm()));
  return all;
}

std::vector<std::string> MpiWorld::gather_all(const std::string& text) {
  const auto num_ranks = static_cast<std::size_t>(size_);
  std::vector<int> lengths(num_ranks), starts(num_ranks);
  const int mine = count_of(text.size());
  TRIREME_MPI(MPI_Allgather(&mine, 1, MPI_INT, lengths.data(), 1, MPI_INT, comm()));
  const auto total = std::accumulate(lengths.begin(), lengths.end(), std::size_t{0});
  std::string joined(static_cast<std::size_t>(count_of(total)), '\0');
  std::exclusive_scan(lengths.begin(), lengths.end(), starts.begin(), 0);
  TRIREME_MPI(MPI_Allgatherv(text.data(), mine, MPI_CHAR, joined.data(), lengths.data(),
                             starts.data(), MPI_CHAR, comm()));
  std::vector<std::string> all;
  all.reserve(num_ranks);
  for (std::size_t r = 0; r < num_ranks; ++r)
    all.push_back(
        joined.substr(static_cast<std::size_t>(starts[r]), static_cast<std::size_t>(lengths[r])));
  return all;
}

std::string MpiWorld::broadcast(std::string bytes, int root) {
  std::uint64_t length = bytes.size();
  TRIREME_MPI(MPI_Bcast(&length, 1, MPI_UINT64_T, root, comm()));
  bytes.resize(length);
  for (std::size_t at = 0; at < length; at += piece_bytes)
    TRIREME_MPI(MPI_Bcast(bytes.data() + at, count_of(std::min(piece_bytes, length - at)), MPI_BYTE,
                          root, comm()));
  return bytes;
}

void MpiWorld::abort(ExitCode code) noexcept {
  std::fflush(nullptr);
  MPI_Abort(comm(), static_cast<int>(code));
  std::_Exit(static_cast<int>(code));
}

std::unique_ptr<World> make_mpi_world() {
  return std::make_unique<MpiWorld>();
}

}  // namespace trireme::comm
