// SPDX-License-Identifier: Apache-2.0
// A stand-in for NCCL on the emulated GPU: the calls that trireme makes, checked against the
// documented contract. Sources: nccl.h 2.28 and NCCL's user guide, sections "Communicators", "Fault
// tolerance" and "User buffer registration".
//
// 1. Ranks are processes of one host and communicate through shared memory (nccl_segment.hpp).
//    As in NCCL, two ranks with the same host and GPU are refused; NCCL_HOSTID separates hosts.
// 2. A call on a non-blocking communicator returns ncclInProgress. Its operation is enqueued after
//    the second query with ncclCommGetAsyncError, because NCCL enqueues it on its own thread: work
//    that was put on the stream before that does not run after it. Until then every other call on
//    the communicator is refused.
// 3. Operations of one communicator run in the order of their calls, on any streams.
// 4. A receive buffer must be exactly in place or must not overlap its send buffer.
// 5. One kind of group is supported: sends to and receives from other ranks, on one communicator
//    and one stream, in which every rank takes part. If two ranks disagree on sizes, all fail.
// 6. Only memory of ncclMemAlloc may be registered. It must not be freed before it is deregistered
//    or its communicator is destroyed.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <unistd.h>

#include "emulated_gpu/device.hpp"
#include "emulated_gpu/nccl_operation.hpp"
#include "emulated_gpu/nccl_segment.hpp"
#include "emulated_gpu/queue.hpp"

namespace emulated::nccl {

static std::mutex last_error_mutex;
static std::string last_error;

/// The last error of NCCL in the process, for every caller.
static ncclResult_t refuse(ncclResult_t status, const std::string& words) {
  const std::lock_guard lock(last_error_mutex);
  last_error = words;
  return status;
}

namespace {

/// Blocks of ncclMemAlloc, and each registration with its communicator.
struct Memory {
  std::mutex mutex;
  std::map<const std::byte*, std::size_t> bytes;
  std::multimap<const std::byte*, const void*> registered;
};

Memory& memory() {
  static Memory all;
  return all;
}

}  // namespace

/// The state that operations share with their communicator; it lives until all have run.
struct Shared {
  std::unique_ptr<Segment> segment;
  std::atomic<bool> aborted{false};
  std::uint64_t operations = 0, rounds = 0;  // used by the GPU's thread only
  std::atomic<std::uint64_t> ended{0};

  std::mutex mutex;
  ncclResult_t asynchronous = ncclSuccess;  // guarded by a mutex

  void fail(ncclResult_t status, const std::string& words) {
    refuse(status, words);
    const std::lock_guard lock(mutex);
    asynchronous = status;
  }
  ncclResult_t error() {
    const std::lock_guard lock(mutex);
    return asynchronous;
  }
};

namespace {

/// Runs until the operation ends, on the GPU's thread.
void run(Shared* shared, const Arguments& arguments) {
  Operation operation(arguments,
                      {shared->segment.get(), &shared->aborted,
                       [&](ncclResult_t status, std::string words) { shared->fail(status, words); },
                       &shared->operations, &shared->rounds});
  while (!operation.advance()) std::this_thread::yield();
}

std::uint64_t host_of_this_process() {
  std::string name;
  if (const char* told = std::getenv("NCCL_HOSTID"); told != nullptr) {
    name = told;
  } else {
    char host[256] = {};
    gethostname(host, sizeof host - 1);
    name = host;
  }
  return std::hash<std::string>{}(name);
}

}  // namespace
}  // namespace emulated::nccl

using namespace emulated::nccl;

struct ncclComm {
  static constexpr std::uint64_t kind = 0x6e63636cULL;
  enum class State { starting, ready, pending, finalizing, finalized };

  std::uint64_t tag = kind;
  std::shared_ptr<Shared> shared = std::make_shared<Shared>();
  bool blocking = true;
  State state = State::starting;
  int asked = 0;  // number of queries while pending
  std::uint64_t launched = 0;
  Arguments arguments;            // of the pending operation
  cudaStream_t stream = nullptr;  // stream of the pending operation
  cudaStream_t last_stream = nullptr;
  cudaEvent_t last_end = nullptr;

  [[nodiscard]] const Segment& segment() const { return *shared->segment; }
  ncclResult_t meet();
  ncclResult_t launch();
  ncclResult_t poll();
  /// For blocking communicators.
  ncclResult_t wait() {
    ncclResult_t status = poll();
    for (; status == ncclInProgress; status = poll()) std::this_thread::yield();
    return status;
  }
  ncclResult_t answer() { return blocking ? wait() : ncclInProgress; }
};

/// Whether every rank has joined and no two ranks share a GPU.
ncclResult_t ncclComm::meet() {
  if (!segment().all(&Seat::taken, 1))
    return segment().aborted() != 0 ? refuse(ncclRemoteError, "a rank gave up") : ncclInProgress;
  segment().unlink();
  for (int a = 0; a < segment().size(); ++a) {
    const Seat& one = segment().seat(a);
    if (one.size != segment().size())
      return refuse(ncclInvalidUsage,
                    "rank " + std::to_string(a) + " counts " + std::to_string(one.size) + " ranks");
    for (int b = a + 1; b < segment().size(); ++b)
      if (const Seat& other = segment().seat(b); one.host == other.host && one.gpu == other.gpu)
        return refuse(ncclInvalidUsage, "Duplicate GPU detected : rank " + std::to_string(a) +
                                            " and rank " + std::to_string(b) +
                                            " both on CUDA device " + std::to_string(one.gpu));
  }
  state = State::ready;
  return ncclSuccess;
}

ncclResult_t ncclComm::launch() {
  cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(stream, &capturing) != cudaSuccess)
    return refuse(ncclUnhandledCudaError, "cudaStreamIsCapturing");
  const bool is_captured = capturing != cudaStreamCaptureStatusNone;
  if (!is_captured && launched > 0 && stream != last_stream &&
      cudaStreamWaitEvent(stream, last_end, cudaEventWaitDefault) != cudaSuccess)
    return refuse(ncclUnhandledCudaError, "cudaStreamWaitEvent");
  if (emulated::enqueue(stream, std::string("nccl") + name(arguments.kind),
                        [kept = shared, what = arguments, is_captured] {
                          run(kept.get(), what);
                          if (!is_captured)
                            ++kept->ended;
                        }) != cudaSuccess)
    return refuse(ncclUnhandledCudaError, "the launch of a collective");
  state = State::ready;
  if (is_captured)
    return ncclSuccess;
  if (cudaEventRecord(last_end, stream) != cudaSuccess)
    return refuse(ncclUnhandledCudaError, "cudaEventRecord");
  ++launched;
  last_stream = stream;
  return ncclSuccess;
}

ncclResult_t ncclComm::poll() {
  if (const auto status = shared->error(); status != ncclSuccess)
    return status;
  switch (state) {
    case State::starting:
      return meet();
    case State::pending:
      return ++asked < 2 ? ncclInProgress : launch();
    case State::finalizing:
      if (shared->ended < launched)
        return ncclInProgress;
      segment().own().finalized.store(1, std::memory_order_release);
      if (!segment().all(&Seat::finalized, 1))
        return segment().aborted() != 0 ? refuse(ncclRemoteError, "a rank gave up")
                                        : ncclInProgress;
      state = State::finalized;
      return ncclSuccess;
    case State::ready:
    case State::finalized:
      break;
  }
  return ncclSuccess;
}

namespace {

bool is_valid(ncclComm_t comm) {
  return comm != nullptr && comm->tag == ncclComm::kind;
}

/// Whether `comm` may be called.
ncclResult_t examine(ncclComm_t comm) {
  if (!is_valid(comm))
    return refuse(ncclInvalidArgument, "no communicator");
  if (const auto status = comm->shared->error(); status != ncclSuccess)
    return status;
  if (comm->state != ncclComm::State::ready)
    return refuse(ncclInvalidUsage,
                  "the communicator is not ready: the call before is still in progress, or it was "
                  "finalized");
  return ncclSuccess;
}

bool overlap(const std::byte* a, std::size_t a_bytes, const std::byte* b, std::size_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

ncclResult_t collective(ncclComm_t comm, const Arguments& arguments, cudaStream_t stream) {
  if (const auto status = examine(comm); status != ncclSuccess)
    return status;
  if (arguments.send == nullptr || arguments.receive == nullptr || bytes_of(arguments.type) == 0)
    return refuse(ncclInvalidArgument, "a buffer at no address, or a type not known here");
  if (!emulated::reaches(arguments.send) || !emulated::reaches(arguments.receive))
    return refuse(ncclInvalidArgument, "a buffer that no GPU reaches");
  const auto ranks = static_cast<std::size_t>(comm->segment().size()),
             rank = static_cast<std::size_t>(comm->segment().rank());
  const std::size_t shard = arguments.count * bytes_of(arguments.type);
  const std::size_t send = arguments.kind == Kind::reduce_scatter ? shard * ranks : shard;
  const std::size_t receive = arguments.kind == Kind::all_gather ? shard * ranks : shard;
  const std::byte* in_place = arguments.kind == Kind::reduce_scatter ? arguments.send + rank * shard
                              : arguments.kind == Kind::all_gather   ? arguments.send - rank * shard
                                                                     : arguments.send;
  if (arguments.receive != in_place && overlap(arguments.send, send, arguments.receive, receive))
    return refuse(ncclInvalidArgument, "buffers that overlap, but not in place");
  comm->arguments = arguments;
  comm->stream = stream;
  comm->state = ncclComm::State::pending;
  comm->asked = 0;
  return comm->answer();
}

/// The sends and receives of the group that this thread has open.
struct Group {
  bool open = false;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  Arguments arguments;
};

Group& group() {
  thread_local Group one;
  return one;
}

template <class Piece>
ncclResult_t add_to_group(std::vector<std::vector<Piece>> Arguments::*lists,
                          decltype(Piece::at) buffer,
                          std::size_t count,
                          ncclDataType_t type,
                          int peer,
                          ncclComm_t comm,
                          cudaStream_t stream) {
  Group& all = group();
  if (!all.open)
    return refuse(ncclInvalidUsage, "a send or a receive outside of a group, which may hang");
  if (const auto status = examine(comm); status != ncclSuccess)
    return status;
  const int ranks = comm->segment().size();
  if (peer < 0 || peer >= ranks || peer == comm->segment().rank())
    return refuse(ncclInvalidArgument, "peer " + std::to_string(peer));
  if (buffer == nullptr || bytes_of(type) == 0 || !emulated::reaches(buffer))
    return refuse(ncclInvalidArgument, "a buffer that no GPU reaches, or a type not known here");
  if (all.comm == nullptr) {
    all.comm = comm;
    all.stream = stream;
    all.arguments.kind = Kind::group;
    all.arguments.type = ncclInt8;
    all.arguments.sends.resize(static_cast<std::size_t>(ranks));
    all.arguments.receives.resize(static_cast<std::size_t>(ranks));
  }
  if (all.comm != comm || all.stream != stream)
    return refuse(ncclInvalidUsage, "a group on several communicators or streams: not emulated");
  (all.arguments.*lists)[static_cast<std::size_t>(peer)].push_back(
      {buffer, count * bytes_of(type)});
  return comm->blocking ? ncclSuccess : ncclInProgress;
}

/// This rank leaves the communicator; its queued operations end.
void let_go(ncclComm_t comm) {
  comm->segment().unlink();
  {
    const std::lock_guard lock(memory().mutex);
    std::erase_if(memory().registered, [&](const auto& one) { return one.second == comm; });
  }
  static_cast<void>(cudaEventDestroy(comm->last_end));
  comm->tag = 0;
  delete comm;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclMemAlloc(void** pointer, std::size_t bytes) {
  if (pointer == nullptr || bytes == 0)
    return refuse(ncclInvalidArgument, "ncclMemAlloc of nothing");
  if (cudaMalloc(pointer, bytes) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return refuse(ncclUnhandledCudaError, "Cuda failure 2 'out of memory'");
  }
  const std::lock_guard lock(memory().mutex);
  memory().bytes[static_cast<const std::byte*>(*pointer)] = bytes;
  return ncclSuccess;
}

ncclResult_t ncclMemFree(void* pointer) {
  const auto* at = static_cast<const std::byte*>(pointer);
  {
    const std::lock_guard lock(memory().mutex);
    if (memory().registered.count(at) != 0)
      return refuse(ncclInvalidUsage, "memory that is still registered");
    if (memory().bytes.erase(at) == 0)
      return refuse(ncclInvalidUsage, "memory that is not ncclMemAlloc's");
  }
  return cudaFree(pointer) == cudaSuccess ? ncclSuccess
                                          : refuse(ncclUnhandledCudaError, "cudaFree");
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> count{0};
  if (id == nullptr)
    return refuse(ncclInvalidArgument, "no place for an id");
  *id = {};
  std::snprintf(id->internal, sizeof id->internal, "/trireme-emulated-nccl-%d-%d",
                static_cast<int>(getpid()), count++);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(
    ncclComm_t* made, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  const ncclConfig_t expected = NCCL_CONFIG_INITIALIZER;
  if (made == nullptr || ranks < 1 || ranks > most_ranks || rank < 0 || rank >= ranks)
    return refuse(ncclInvalidArgument,
                  "rank " + std::to_string(rank) + " of " + std::to_string(ranks));
  if (config != nullptr && (config->size != expected.size || config->magic != expected.magic))
    return refuse(ncclInvalidArgument, "a configuration without NCCL_CONFIG_INITIALIZER");
  if (config != nullptr && config->maxCTAs != NCCL_CONFIG_UNDEF_INT && config->maxCTAs < 1)
    return refuse(ncclInvalidArgument, "maxCTAs " + std::to_string(config->maxCTAs));
  int gpu = 0;
  if (cudaGetDevice(&gpu) != cudaSuccess)
    return refuse(ncclUnhandledCudaError, "cudaGetDevice");
  auto comm = std::make_unique<ncclComm>();
  comm->blocking = config == nullptr || config->blocking != 0;
  try {
    comm->shared->segment =
        std::make_unique<Segment>(id.internal, rank, ranks, gpu, host_of_this_process());
  } catch (const std::runtime_error& problem) {
    return refuse(ncclSystemError, problem.what());
  }
  if (cudaEventCreate(&comm->last_end) != cudaSuccess)
    return refuse(ncclUnhandledCudaError, "cudaEventCreate");
  *made = comm.release();
  return (*made)->answer();
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (const auto status = examine(comm); status != ncclSuccess)
    return status;
  comm->state = ncclComm::State::finalizing;
  return comm->answer();
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (!is_valid(comm))
    return refuse(ncclInvalidArgument, "no communicator");
  ncclResult_t status = ncclSuccess;
  if (comm->state == ncclComm::State::ready) {
    comm->state = ncclComm::State::finalizing;
    status = comm->wait();
  }
  // A non-blocking one is reclaimed on another thread, so it cannot be queried any more.
  if (!comm->blocking && status == ncclSuccess)
    status = ncclInProgress;
  let_go(comm);
  return status;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (!is_valid(comm))
    return refuse(ncclInvalidArgument, "no communicator");
  comm->shared->aborted = true;
  if (comm->state != ncclComm::State::finalized)
    comm->segment().aborted().store(1, std::memory_order_release);
  let_go(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* status) {
  if (!is_valid(comm) || status == nullptr)
    return refuse(ncclInvalidArgument, "no communicator");
  *status = comm->poll();
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

const char* ncclGetLastError(ncclComm_t /*comm*/) {
  thread_local std::string copy;
  const std::lock_guard lock(last_error_mutex);
  copy = last_error;
  return copy.c_str();
}

ncclResult_t ncclCommRegister(const ncclComm_t comm,
                              void* buffer,
                              std::size_t bytes,
                              void** handle) {
  if (const auto status = examine(comm); status != ncclSuccess)
    return status;
  const auto* at = static_cast<const std::byte*>(buffer);
  const std::lock_guard lock(memory().mutex);
  const auto known = memory().bytes.find(at);
  if (handle == nullptr || known == memory().bytes.end() || known->second < bytes)
    return refuse(ncclInvalidUsage, "only memory of ncclMemAlloc can be registered");
  memory().registered.emplace(at, comm);
  *handle = buffer;
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
  if (const auto status = examine(comm); status != ncclSuccess)
    return status;
  const std::lock_guard lock(memory().mutex);
  const auto known = memory().registered.find(static_cast<const std::byte*>(handle));
  if (known == memory().registered.end())
    return refuse(ncclInvalidArgument, "a handle that was never given");
  memory().registered.erase(known);
  return ncclSuccess;
}

ncclResult_t ncclReduceScatter(const void* send,
                               void* receive,
                               std::size_t count,
                               ncclDataType_t type,
                               ncclRedOp_t operation,
                               ncclComm_t comm,
                               cudaStream_t stream) {
  if (operation != ncclSum)
    return refuse(ncclInvalidArgument, "only sums are known here");
  return collective(comm,
                    {Kind::reduce_scatter, static_cast<const std::byte*>(send),
                     static_cast<std::byte*>(receive), count, type},
                    stream);
}

ncclResult_t ncclAllGather(const void* send,
                           void* receive,
                           std::size_t count,
                           ncclDataType_t type,
                           ncclComm_t comm,
                           cudaStream_t stream) {
  return collective(comm,
                    {Kind::all_gather, static_cast<const std::byte*>(send),
                     static_cast<std::byte*>(receive), count, type},
                    stream);
}

ncclResult_t ncclGroupStart() {
  if (group().open)
    return refuse(ncclInvalidUsage, "a group within a group: not emulated");
  group() = {true, nullptr, nullptr, {}};
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  const Group all = std::exchange(group(), Group{});
  if (!all.open)
    return refuse(ncclInvalidUsage, "the end of no group");
  if (all.comm == nullptr)
    return ncclSuccess;
  all.comm->arguments = all.arguments;
  all.comm->stream = all.stream;
  all.comm->state = ncclComm::State::pending;
  all.comm->asked = 0;
  return all.comm->answer();
}

ncclResult_t ncclSend(const void* send,
                      std::size_t count,
                      ncclDataType_t type,
                      int peer,
                      ncclComm_t comm,
                      cudaStream_t stream) {
  return add_to_group<Sent>(&Arguments::sends, static_cast<const std::byte*>(send), count, type,
                            peer, comm, stream);
}

ncclResult_t ncclRecv(void* receive,
                      std::size_t count,
                      ncclDataType_t type,
                      int peer,
                      ncclComm_t comm,
                      cudaStream_t stream) {
  return add_to_group<Received>(&Arguments::receives, static_cast<std::byte*>(receive), count, type,
                                peer, comm, stream);
}

ncclResult_t ncclAllReduce(const void* send,
                           void* receive,
                           std::size_t count,
                           ncclDataType_t type,
                           ncclRedOp_t operation,
                           ncclComm_t comm,
                           cudaStream_t stream) {
  if (operation != ncclSum)
    return refuse(ncclInvalidArgument, "only sums are known here");
  return collective(comm,
                    {Kind::all_reduce, static_cast<const std::byte*>(send),
                     static_cast<std::byte*>(receive), count, type},
                    stream);
}

}  // extern "C"
