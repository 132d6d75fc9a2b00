// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator.hpp"

#include <algorithm>

#include "device/cuda/handle.hpp"

#include "comm/transport/shared_segment.hpp"
#include "comm/transport/transports.hpp"

namespace trireme::comm {

Shards::Shards(View bucket, int rank, int size)
    : full(bucket), own(bucket.slice(rank * (bucket.elements / size), bucket.elements / size)) {
  TRIREME_EXPECT(full.dtype == DType::f32 || full.dtype == DType::bf16 || full.dtype == DType::i64,
                 "a bucket of {}", name(full.dtype));
  TRIREME_EXPECT(full.elements % size == 0, "a bucket of {} elements for {} ranks", full.elements,
                 size);
}

std::size_t message_bytes(const Options& options, bool one_host) {
  constexpr std::size_t inside_a_host = std::size_t{512} << 10U;
  constexpr std::size_t between_hosts = std::size_t{60} << 10U;
  if (options.chunk_bytes != 0)
    return options.chunk_bytes;
  return one_host ? inside_a_host : between_hosts;
}

std::size_t bf16_term_bytes(const Options& options, int ranks) {
  constexpr std::size_t least_of_a_rank = 8192;
  // A sum of two terms is rounded once by every method.
  if (options.bf16_sum == NcclBf16Sum::library || options.bf16_sum_bytes == 0 || ranks <= 2)
    return 0;
  return std::max(options.bf16_sum_bytes, least_of_a_rank * static_cast<std::size_t>(ranks));
}

namespace {

/// With one rank the bucket is the shard, and it already is the sum.
class SelfCommunicator final : public Communicator {
 public:
  explicit SelfCommunicator(device::Device& device) : Communicator(0, 1), device_(device) {}

  [[nodiscard]] std::string_view name() const override { return word(Transport::self); }

  device::Buffer allocate(std::size_t bytes, std::string_view what) override {
    return device_.allocate(bytes, what);
  }
  void enqueue(Operation /*operation*/,
               const Shards& /*shards*/,
               BucketIndex /*bucket*/,
               device::Stream& /*stream*/) override {}

 private:
  device::Device& device_;
};

/// The reason why the ranks of some node cannot map each other's memory, as in some containers.
/// Empty, on all ranks, if they can.
std::string why_no_shared_memory(MpiWorld& world, const OwnedComm& node) {
  try {
    const SharedSegment test(node.get(), world, 4096, "a test of shared memory");
    return "";
  } catch (const EnvironmentError& error) {
    return error.reason();
  }
}

/// Chooses the transport for `automatic`. Sets `note` to a remark for the log.
Transport choose(MpiWorld& world, const OwnedComm& node, std::string& note) {
  std::int64_t largest = node.size();
  world.max({&largest, 1});
  if (largest == 1)
    return Transport::mpi;
  if (const std::string why = why_no_shared_memory(world, node); !why.empty()) {
    note = fmt::format(
        "parallel.transport: auto chose mpi, which is slower inside a host, because ranks of one "
        "host cannot share memory: {}",
        why);
    return Transport::mpi;
  }
  return node.size() == world.size() ? Transport::shared_memory : Transport::hierarchical;
}

void expect_fitting(Transport transport, const MpiWorld& world, const OwnedComm& node) {
  if (transport == Transport::shared_memory && node.size() != world.size())
    throw UserError(
        fmt::format("parallel.transport: shared_memory connects ranks of one host only, but {} of "
                    "the {} ranks of this run are on {}; use hierarchical, mpi or auto",
                    node.size(), world.size(), world.host()));
}

std::unique_ptr<Communicator> make_gpu_communicator(Transport transport,
                                                    Reduction reduction,
                                                    World& world,
                                                    device::Device& device,
                                                    const Options& options) {
  if (device.kind() != device::Kind::cuda)
    throw UserError("parallel.transport: nccl needs GPUs, but this run computes on the CPU");
  if (transport != Transport::nccl && transport != Transport::automatic)
    throw UserError(
        fmt::format("parallel.transport: {} supports host memory only, but this run computes on "
                    "GPUs; use nccl or auto",
                    word(transport)));
  if (reduction != Reduction::sum && world.size() > 1)
    throw UserError(
        fmt::format("parallel.reduction: NCCL does not support {}; use sum", word(reduction)));
  if constexpr (device::cuda::in_this_build)
    return make_nccl_communicator(world, device, options);
  return nullptr;  // not reached: without CUDA there is no GPU device
}

}  // namespace

std::string nccl_version() {
  if constexpr (device::cuda::in_this_build)
    return loaded_nccl_version();
  return {};
}

std::unique_ptr<Communicator> make_communicator(Transport transport,
                                                Reduction reduction,
                                                World& world,
                                                device::Device& device,
                                                const Options& options) {
  TRIREME_EXPECT(options.chunk_bytes % 64 == 0 && options.chunk_bytes <= std::size_t{1} << 30U,
                 "chunks of {} bytes", options.chunk_bytes);
  if (options.replicas.count() > 1) {
    auto* mpi = dynamic_cast<MpiWorld*>(&world);
    TRIREME_EXPECT(mpi != nullptr, "{} without MPI", options.replicas.text());
    return make_replicated_communicator(transport, reduction, *mpi, device, options);
  }
  if (transport == Transport::self && world.size() > 1)
    throw UserError(fmt::format(
        "parallel.transport: self supports one rank only, but this run has {}", world.size()));
  if (transport == Transport::self || (transport == Transport::automatic && world.size() == 1))
    return std::make_unique<SelfCommunicator>(device);
  if (device.kind() == device::Kind::cuda || transport == Transport::nccl)
    return make_gpu_communicator(transport, reduction, world, device, options);
  auto* mpi = dynamic_cast<MpiWorld*>(&world);
  if (mpi == nullptr)
    throw UserError(fmt::format(
        "parallel.transport: {} needs MPI, but this run was started without it", word(transport)));
  mpi->barrier();  // MPI splits communicators without a deadline, so all ranks must be here
  OwnedComm node = OwnedComm::of_host(mpi->comm());
  std::string note;
  if (transport == Transport::automatic)
    transport = choose(*mpi, node, note);
  expect_fitting(transport, *mpi, node);
  if (transport == Transport::mpi)
    node = OwnedComm::duplicate(MPI_COMM_SELF);
  auto made = make_node_communicator(transport, reduction, *mpi, device, options, std::move(node));
  made->set_note(std::move(note));
  return made;
}

}  // namespace trireme::comm
