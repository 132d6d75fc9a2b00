// SPDX-License-Identifier: Apache-2.0
#include "comm/control/mpi_world.hpp"

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <thread>
#include <utility>

#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error_line.hpp"
#include "base/kernel_text.hpp"

#include "comm/control/requests.hpp"
#include "comm/control/start_timer.hpp"
#include "comm/control/temporary_directory.hpp"

namespace trireme::comm {
namespace {

/// Broadcasts are sent in parts of this many bytes.
constexpr std::size_t piece_bytes = std::size_t{1} << 24U;

int count_of(std::size_t elements) {
  TRIREME_EXPECT(elements <= static_cast<std::size_t>(std::numeric_limits<int>::max()),
                 "{} elements in one small exchange", elements);
  return static_cast<int>(elements);
}

/// Waits for a short time until the launcher has read this rank's output. MPICH's launcher kills
/// all ranks at once when one aborts, and output that is still in the pipe is lost.
void await_reader(int descriptor) {
  struct stat kind {};
  if (fstat(descriptor, &kind) != 0 || !S_ISFIFO(kind.st_mode))
    return;
  const auto enough = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  int unread = 0;
  while (ioctl(descriptor, FIONREAD, &unread) == 0 && unread > 0 &&
         std::chrono::steady_clock::now() < enough)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

const char* environment(const char* name) {
  return std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
}

/// Whether all ranks are on this host: the launcher reports one node, or there is no launcher.
bool runs_on_one_host() {
  if (const char* all = environment("OMPI_COMM_WORLD_SIZE")) {
    const char* local = environment("OMPI_COMM_WORLD_LOCAL_SIZE");
    return local != nullptr && std::string_view(all) == local;
  }
  if (const char* nodes = environment("SLURM_STEP_NUM_NODES");
      nodes != nullptr && environment("SLURM_PROCID") != nullptr)
    return std::string_view(nodes) == "1";
  return environment("PMIX_RANK") == nullptr && environment("PMI_RANK") == nullptr;
}

/// Prevents Open MPI from listening on all network interfaces for ranks of other hosts, and from
/// starting a daemon that does so for a process without a launcher. Such a process gets no session
/// directory either: Open MPI 4 gives all of them the same one, where starts at the same time fail.
/// Keeps what the user has set.
void open_no_ports() {
  if (!runs_on_one_host())
    return;
  constexpr int keep = 0;
  ::setenv("OMPI_MCA_btl", "^tcp,ofi", keep);  // NOLINT(concurrency-mt-unsafe)
  if (environment("OMPI_COMM_WORLD_SIZE") != nullptr || environment("SLURM_PROCID") != nullptr)
    return;
  ::setenv("OMPI_MCA_ess_singleton_isolated", "1", keep);    // NOLINT(concurrency-mt-unsafe)
  ::setenv("OMPI_MCA_orte_create_session_dirs", "0", keep);  // NOLINT(concurrency-mt-unsafe)
}

OwnedComm part_of(MpiWorld& whole, int number) {
  whole.barrier();  // MPI's own waiting has no deadline
  MPI_Comm part = MPI_COMM_NULL;
  TRIREME_MPI(MPI_Comm_split(whole.comm(), number, whole.rank(), &part));
  return OwnedComm(part);
}

}  // namespace

void check_mpi(int code, const char* statement, const char* file, int line) {
  if (code == MPI_SUCCESS) [[likely]]
    return;
  std::array<char, MPI_MAX_ERROR_STRING> words{};
  int length = 0;
  std::string reason;
  if (MPI_Error_string(code, words.data(), &length) == MPI_SUCCESS)
    reason = trimmed(words.data());
  else
    reason = fmt::format("error code {}", code);
  if (!means_lost_rank(code))
    throw CommError("MPI", statement, reason, file, line);
  revoke_all();
  throw LostRank("MPI", statement, reason, file, line);
}

MpiScope::MpiScope(int& argc, char**& argv) {
  open_no_ports();
  int provided = MPI_THREAD_SINGLE;
  {
    const std::jthread timer = init_timer();
    TRIREME_MPI(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
  }
  TRIREME_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  if (provided < MPI_THREAD_MULTIPLE)
    throw CommError("MPI", "MPI_Init_thread(MPI_THREAD_MULTIPLE)",
                    "this MPI library does not support several threads; use one that does");
}

MpiScope::~MpiScope() {
  const int code = MPI_Finalize();
  if (code != MPI_SUCCESS)
    error_line("error: MPI_Finalize failed with code {}", code);
}

std::string mpi_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  TRIREME_MPI(MPI_Get_library_version(text.data(), &length));
  return trimmed(text.data());
}

void MpiWorld::find_ranks() {
  rank_ = comm_.rank();
  size_ = comm_.size();
  const OwnedComm local = OwnedComm::of_host(comm());
  local_rank_ = local.rank();
  local_size_ = local.size();
  local_rank_at_start = local_rank_;
  std::array<char, MPI_MAX_PROCESSOR_NAME> name{};
  int length = 0;
  TRIREME_MPI(MPI_Get_processor_name(name.data(), &length));
  host_ = trimmed(name.data());
}

MpiWorld::MpiWorld(MpiWorld& whole, int number, bool own_lanes)
    : comm_(part_of(whole, number)),
      watchdog_(whole.watchdog_),
      lane_part_(own_lanes ? number + 1 : whole.lane_part_) {
  continues_after_loss = whole.continues_after_loss;
  find_ranks();
  progress_ = std::make_unique<Progress>(*watchdog_, lane_part_);
}

MpiWorld::MpiWorld(MPI_Comm base) : base_(base) {
  const std::jthread timer = start_timer();
  comm_ = OwnedComm::duplicate(base);
  find_ranks();
  // Names have a maximum length, so one plain exchange is enough here, before the watchdog exists.
  std::array<char, MPI_MAX_PROCESSOR_NAME> name{};
  host_.copy(name.data(), name.size() - 1);
  std::vector<char> names(static_cast<std::size_t>(size_) * name.size());
  TRIREME_MPI(MPI_Allgather(name.data(), MPI_MAX_PROCESSOR_NAME, MPI_CHAR, names.data(),
                            MPI_MAX_PROCESSOR_NAME, MPI_CHAR, comm()));
  std::vector<std::string> hosts;
  for (std::size_t r = 0; r < static_cast<std::size_t>(size_); ++r)
    hosts.emplace_back(names.data() + r * name.size());
  own_watchdog_ = std::make_unique<Watchdog>(comm(), std::move(hosts));
  watchdog_ = own_watchdog_.get();
  progress_ = std::make_unique<Progress>(*watchdog_);
}

void MpiWorld::barrier() {
  const auto entered = progress_->enter("a barrier");
  MPI_Request request = MPI_REQUEST_NULL;
  TRIREME_MPI(MPI_Ibarrier(comm(), &request));
  await(request, *progress_);
}

void MpiWorld::reduce(std::span<std::int64_t> values, MPI_Op op, const char* what) {
  const auto entered = progress_->enter(what);
  auto* at = buffer<std::int64_t>(values.size());
  std::ranges::copy(values, at);
  MPI_Request request = MPI_REQUEST_NULL;
  TRIREME_MPI(
      MPI_Iallreduce(MPI_IN_PLACE, at, count_of(values.size()), MPI_INT64_T, op, comm(), &request));
  await(request, *progress_);
  std::copy_n(at, values.size(), values.begin());
}

void MpiWorld::sum(std::span<std::int64_t> values) {
  reduce(values, MPI_SUM, "a sum over the ranks");
}

void MpiWorld::max(std::span<std::int64_t> values) {
  reduce(values, MPI_MAX, "a maximum over the ranks");
}

std::vector<double> MpiWorld::gather_all(std::span<const double> values) {
  const auto entered = progress_->enter("a gather of numbers");
  return gather_numbers(values);
}

std::vector<double> MpiWorld::gather_numbers(std::span<const double> values) {
  const std::size_t total = values.size() * static_cast<std::size_t>(size_);
  auto* at = buffer<double>(total);
  std::ranges::copy(values, at + values.size() * static_cast<std::size_t>(rank_));
  const int count = count_of(values.size());
  MPI_Request request = MPI_REQUEST_NULL;
  TRIREME_MPI(
      MPI_Iallgather(MPI_IN_PLACE, count, MPI_DOUBLE, at, count, MPI_DOUBLE, comm(), &request));
  await(request, *progress_);
  return {at, at + total};
}

std::size_t MpiWorld::lay_out(const std::string& mine) {
  const auto length = static_cast<double>(mine.size());
  const auto lengths = gather_numbers({&length, 1});
  // MPI reads these arrays until the collective ends.
  lengths_.assign(lengths.size(), 0);
  starts_.assign(lengths.size(), 0);
  std::size_t total = 0;
  for (std::size_t r = 0; r < lengths.size(); ++r) {
    starts_[r] = count_of(total);
    lengths_[r] = count_of(static_cast<std::size_t>(lengths[r]));
    total += static_cast<std::size_t>(lengths[r]);
  }
  return static_cast<std::size_t>(count_of(total));
}

std::vector<std::string> MpiWorld::texts_at(const char* at) const {
  std::vector<std::string> all;
  all.reserve(lengths_.size());
  for (std::size_t r = 0; r < lengths_.size(); ++r)
    all.emplace_back(at + starts_[r], static_cast<std::size_t>(lengths_[r]));
  return all;
}

std::vector<std::string> MpiWorld::gather_all(const std::string& text) {
  const auto entered = progress_->enter("a gather of texts");
  char* at = buffer<char>(lay_out(text));
  std::ranges::copy(text, at + starts_[static_cast<std::size_t>(rank_)]);
  MPI_Request request = MPI_REQUEST_NULL;
  TRIREME_MPI(MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_CHAR, at, lengths_.data(), starts_.data(),
                              MPI_CHAR, comm(), &request));
  await(request, *progress_);
  return texts_at(at);
}

std::vector<std::string> MpiWorld::gather(const std::string& text) {
  const auto entered = progress_->enter("a gather of texts on the first rank");
  const std::size_t total = lay_out(text);
  const bool first = rank_ == 0;
  char* at = buffer<char>(first ? total : text.size());
  std::ranges::copy(text, at);  // the first rank's text is the first
  MPI_Request request = MPI_REQUEST_NULL;
  TRIREME_MPI(MPI_Igatherv(first ? MPI_IN_PLACE : at, count_of(text.size()), MPI_CHAR, at,
                           lengths_.data(), starts_.data(), MPI_CHAR, 0, comm(), &request));
  await(request, *progress_);
  return first ? texts_at(at) : std::vector<std::string>();
}

std::string MpiWorld::broadcast(std::string bytes, int root) {
  const auto entered = progress_->enter("a broadcast");
  auto* length = buffer<std::uint64_t>(1);
  *length = bytes.size();
  MPI_Request request = MPI_REQUEST_NULL;
  TRIREME_MPI(MPI_Ibcast(length, 1, MPI_UINT64_T, root, comm(), &request));
  await(request, *progress_);
  bytes.resize(*length);
  for (std::size_t done = 0; done < bytes.size(); done += piece_bytes) {
    const std::size_t count = std::min(piece_bytes, bytes.size() - done);
    char* at = buffer<char>(count);
    bytes.copy(at, count, done);
    TRIREME_MPI(MPI_Ibcast(at, count_of(count), MPI_BYTE, root, comm(), &request));
    await(request, *progress_);
    std::copy_n(at, count, bytes.begin() + static_cast<std::ptrdiff_t>(done));
  }
  return bytes;
}

void MpiWorld::swap(std::span<const char> mine, int to, std::span<char> theirs, int from) {
  char* at = buffer<char>(mine.size() + theirs.size());
  std::ranges::copy(mine, at);
  std::array<MPI_Request, 2> requests{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  const CancelOnExit open(requests);
  constexpr int tag = 1;
  if (!theirs.empty())
    TRIREME_MPI(MPI_Irecv(at + mine.size(), count_of(theirs.size()), MPI_BYTE, from, tag, comm(),
                          requests.data()));
  if (!mine.empty())
    TRIREME_MPI(
        MPI_Isend(at, count_of(mine.size()), MPI_BYTE, to, tag, comm(), requests.data() + 1));
  for (MPI_Request& request : requests) {
    while (!completed(request)) progress_->pause();
    progress_->moved();
  }
  std::copy_n(at + mine.size(), theirs.size(), theirs.begin());
}

void MpiWorld::exchange(const std::string& mine, int to, std::string& theirs, int from) {
  const auto entered = progress_->enter("an exchange between partners");
  const std::size_t sent = mine.size();
  std::size_t received = 0;
  swap({reinterpret_cast<const char*>(&sent), sizeof sent}, to,
       {reinterpret_cast<char*>(&received), sizeof received}, from);
  if (theirs.size() != received) {
    theirs = {};  // first, so that both are never held
    theirs.resize(received);
  }
  const std::span<const char> out(mine);
  const std::span<char> in(theirs);
  for (std::size_t done = 0; done < std::max(sent, received); done += piece_bytes) {
    const auto next = [done](auto all) {
      const std::size_t begin = std::min(done, all.size());
      return all.subspan(begin, std::min(piece_bytes, all.size() - begin));
    };
    swap(next(out), to, next(in), from);
  }
}

void MpiWorld::expect_no_loss() {
  if (ranks_are_lost())
    throw LostRank("communication", "any collective", "a rank was lost");
}

void MpiWorld::abort(ExitCode code) noexcept {
  TemporaryDirectory::remove_all();  // at once: a launcher kills the ranks a second after a signal
  std::fflush(nullptr);
  await_reader(STDOUT_FILENO);
  await_reader(STDERR_FILENO);
  TemporaryDirectory::remove_all();  // what other threads made there meanwhile
  // Not comm(), though it has the same ranks: MPICH asks the launcher to end the job only for
  // MPI_COMM_WORLD. For another communicator it asks the ranks; a stopped rank does not answer, and
  // mpiexec returns 0 or 9, depending on which rank ends first.
  MPI_Abort(MPI_COMM_WORLD, static_cast<int>(code));
  std::_Exit(static_cast<int>(code));
}

std::unique_ptr<World> make_mpi_world() {
  return std::make_unique<MpiWorld>(MPI_COMM_WORLD);
}

bool replace_after_loss(std::unique_ptr<World>& world, bool lost) try {
  auto& mpi = dynamic_cast<MpiWorld&>(*world);
  MPI_Comm base = mpi.base();
  if (agree(base, !lost))
    return false;
  revoke_all();  // also on ranks that have not noticed the loss
  std::string names = mpi.watchdog().lost_text();
  const int local_rank_at_start = world->local_rank_at_start;
  world.reset();
  for (;;) {
    // Not freed: later losses are found by its ranks.
    base = register_comm(without_lost_ranks(base));
    try {
      world = std::make_unique<MpiWorld>(base);
    } catch (const LostRank&) {  // one more, perhaps not for all ranks
    }
    if (!agree(base, world != nullptr)) {
      revoke_all();
      world.reset();
      names += ", and another one";
      continue;
    }
    world->continues_after_loss = true;
    world->lost = names;
    world->local_rank_at_start = local_rank_at_start;
    return true;
  }
} catch (const CommError& error) {
  error_line("error: cannot continue after the loss of a rank: {}", error.what());
  MPI_Abort(MPI_COMM_WORLD, static_cast<int>(ExitCode::environment));
  throw;
}

}  // namespace trireme::comm
