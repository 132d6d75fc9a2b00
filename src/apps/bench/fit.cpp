// SPDX-License-Identifier: Apache-2.0
#include "bench/fit.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>

#include <omp.h>

#include "base/error.hpp"
#include "base/quantile.hpp"
#include "base/round_up.hpp"
#include "device/recorder.hpp"
#include "layout/budget.hpp"

#include "model/layers.hpp"

#include "comm/collective/hosts.hpp"
#include "comm/control/mpi_world.hpp"
#include "comm/control/placement.hpp"

#include "session/machine.hpp"
#include "session/memory_copies.hpp"
#include "session/rank_memory.hpp"
#include "session/stop.hpp"

#include "bench/isolated_step.hpp"
#include "bench/race.hpp"
#include "plan/bucket_traffic.hpp"
#include "plan/link_cost.hpp"

namespace trireme::bench {
namespace {

using plan::Link;
using plan::Machine;

constexpr int fit_warmups = 3;
constexpr std::int64_t least_bytes = 1 << 10;
constexpr std::int64_t size_factor = 4;
constexpr std::int64_t row_bytes = 4 << 20;
constexpr std::size_t copied_bytes = 16 << 20;

/// The median of the slowest ranks' times of `action`.
double seconds_of(const std::function<void()>& action,
                  device::Stream& stream,
                  comm::World& world,
                  int repetitions) {
  const RaceLimits limits{.repetitions = repetitions, .warmups = fit_warmups};
  return race({action}, stream, world, limits).front();
}

/// The fitted link of these rows over `wire`, whose transport may be auto.
Link link_of(const std::vector<CollectivesBenchRow>& rows, const plan::Wire& wire) {
  Link link{wire, {}};
  link.transport = value_named<comm::Transport>(rows.front().transport).value();
  for (const CollectivesBenchRow& row : rows) {
    TRIREME_EXPECT(row.wrong == 0, "{} elements are wrong after {} by {}", row.wrong, row.operation,
                   row.transport);
    const auto operation = value_named<plan::Operation>(row.operation).value();
    const plan::Numbers dtype = plan::numbers_of(row.dtype);
    auto collective = std::ranges::find_if(link.collectives, [&](const auto& one) {
      return one.operation == operation && one.dtype == dtype;
    });
    if (collective == link.collectives.end())
      collective = link.collectives.insert(
          collective, plan::Collective{.operation = operation, .dtype = dtype, .points = {}});
    if (collective->points.empty() || collective->points.back().bytes < row.bytes)
      collective->points.push_back({row.bytes, row.seconds});
  }
  for (plan::Collective& collective : link.collectives) {
    // Disturbances only increase times: a bucket takes no longer than a larger one.
    for (std::size_t i = collective.points.size() - 1; i > 0; --i)
      collective.points[i - 1].seconds =
          std::min(collective.points[i - 1].seconds, collective.points[i].seconds);
    const plan::Line line = plan::fit_line(collective.points);
    collective.latency_s = line.latency_s;
    collective.seconds_per_byte = line.seconds_per_byte;
    collective.residual = line.residual;
  }
  return link;
}

/// Collectives that run during a step.
class Traffic {
 public:
  Traffic(comm::Communicator& communicator, device::Device& device, std::int64_t elements)
      : communicator_(communicator),
        buffer_(communicator.allocate(static_cast<std::size_t>(elements) * sizeof(float),
                                      "buckets during a step")),
        shards_(communicator.shards(buffer_.view(DType::f32))),
        begin_(device.make_event()),
        end_(device.make_event()),
        stream_(device.make_stream(device::StreamMode::concurrent, "communication")) {}

  void enqueue(int times) {
    stream_->record(*begin_);
    for (int i = 0; i < times; ++i)
      communicator_.reduce_scatter(*shards_, BucketIndex{0}, *stream_);
    stream_->record(*end_);
  }
  /// Waits for enqueued collectives and returns the time.
  double seconds() {
    stream_->synchronize();
    return end_->seconds() - begin_->seconds();
  }

 private:
  comm::Communicator& communicator_;
  device::Buffer buffer_;
  std::unique_ptr<comm::Shards> shards_;
  std::unique_ptr<device::Event> begin_, end_;
  std::unique_ptr<device::Stream> stream_;
};

struct Measured {
  IsolatedStep& isolated;
  comm::World& world;  ///< all ranks
  device::Device& device;
  double step_s = 0;  ///< approximate time of an isolated step
  int rounds = 1;     ///< of steps with collectives
};

/// Measures how a step and collectives slow each other down on the slowest ranks, and fills in the
/// members of Sharing. Collectives fill about half of the step.
void measure_sharing(Link& link,
                     const Measured& measured,
                     comm::Communicator& communicator,
                     std::int64_t largest_bytes) {
  IsolatedStep& isolated = measured.isolated;
  comm::World& world = measured.world;
  const double step_s = measured.step_s;
  const plan::Collective& price = link.collectives.front();
  std::int64_t bytes = largest_bytes;
  while (bytes > least_bytes &&
         plan::measured_seconds(price, static_cast<double>(bytes)) > step_s / 8)
    bytes /= 2;
  constexpr std::int64_t granule = 64;
  const std::int64_t elements = rounded_up(bytes / 4, granule * communicator.size());
  Traffic traffic(communicator, isolated.device(), elements);
  const double one = plan::measured_seconds(price, static_cast<double>(4 * elements));
  const int times = static_cast<int>(std::clamp(step_s / 2 / one, 1.0, 1000.0));
  std::vector<double> lost, stretch, uneven;
  const int warm_rounds = step_s > warm_s ? 1 : fit_warmups;
  for (int round = -warm_rounds; round < measured.rounds; ++round) {
    world.barrier();
    traffic.enqueue(times);
    const double collective_alone_s = traffic.seconds();
    world.barrier();
    const double alone_from = device::steady_seconds();
    isolated.step();
    const double compute_alone_s = device::steady_seconds() - alone_from;
    world.barrier();
    const double from = device::steady_seconds();
    traffic.enqueue(times);
    isolated.step();
    const double compute_shared_s = device::steady_seconds() - from;
    const std::vector<double> most = comm::largest_of_ranks(
        world,
        std::array{collective_alone_s, compute_alone_s, compute_shared_s, traffic.seconds()});
    const double collective_alone = most[0], compute_alone = most[1], compute_shared = most[2],
                 collective_shared = most[3];
    const std::vector<double> more =
        world.gather_all(std::array{compute_shared_s - compute_alone_s});
    if (round < 0)
      continue;
    const double shared = std::min(collective_shared, compute_shared);
    const double lost_s = compute_shared - compute_alone;
    lost.push_back(lost_s / shared);
    stretch.push_back(collective_shared / collective_alone);
    uneven.push_back((lost_s - std::reduce(more.begin(), more.end()) / world.size()) / shared);
  }
  link.compute_lost = std::clamp(median(lost), 0.0, 1.0);
  link.stretch = std::max(median(stretch), 1.0);
  link.waiting_during = std::clamp(median(uneven), 0.0, 1.0);
}

void measure_exchanges(Link& link,
                       comm::Communicator& communicator,
                       device::Device& device,
                       comm::World& world,
                       int repetitions) {
  const auto stream = device.make_stream(device::StreamMode::inlined, "exchanges");
  const std::int64_t words = layout::step_sum_elements(world.size());
  const auto buffer = communicator.allocate(static_cast<std::size_t>(words) * sizeof(std::int64_t),
                                            "sums of a step");
  const auto shards = communicator.shards(buffer.view(DType::i64));
  const auto sums = [&] { communicator.all_reduce(*shards, comm::sums_of_the_step, *stream); };
  const auto control = [&] { session::agree(world, session::Requests{}); };
  link.sums_s = seconds_of(sums, *stream, world, repetitions);
  link.control_s = seconds_of(control, *stream, world, repetitions);
  const auto state = device.allocate(copied_bytes, "state that is copied");
  session::MemoryCopies copies;
  copies.choose_partners(world);
  const std::array slabs{record::MutableSlab{"", {}, 0, state.view(DType::f32)}};
  record::CheckpointFacts facts;
  facts.step = 1;
  const auto copy = [&] { copies.take(facts, slabs, *stream, world); };
  link.copy_s_per_byte =
      seconds_of(copy, *stream, world, repetitions) / static_cast<double>(copied_bytes);
}

comm::Hosts hosts_of(comm::World& world, int threads) {
  std::vector<int> host_of(static_cast<std::size_t>(world.size()));
  const comm::Placement placement = comm::gather_placement(world, threads);
  const std::vector<std::string> hosts = placement.hosts();
  for (std::size_t host = 0; host < hosts.size(); ++host)
    for (const int rank : placement.ranks_on(hosts[host]))
      host_of[static_cast<std::size_t>(rank)] = static_cast<int>(host);
  return comm::Hosts(host_of);
}

/// Measures the link of `part` of the world, all parts at the same time; gives the slowest part's.
Link measure_link(const Measured& measured,
                  comm::World& part,
                  const plan::Wire& wire,
                  CollectivesBenchRequest bench,
                  std::int64_t largest) {
  if (wire.hosts > 1)  // on one host, later repetitions would find their bucket in the caches
    bench.row_bytes = row_bytes;
  std::ranges::sort(bench.bytes);
  const auto repeated = std::ranges::unique(bench.bytes);
  bench.bytes.erase(repeated.begin(), repeated.end());
  std::vector<CollectivesBenchRow> rows = bench_collectives(part, measured.device, bench);
  for (CollectivesBenchRow& row : rows)
    row.seconds = comm::largest_of_ranks(measured.world, std::array{row.seconds}).front();
  Link link = link_of(rows, wire);
  const auto communicator =
      comm::make_communicator(link.transport, link.reduction, part, measured.device, bench.options);
  measure_exchanges(link, *communicator, measured.device, part, bench.repetitions);
  for (double* seconds : {&link.sums_s, &link.control_s, &link.copy_s_per_byte})
    *seconds = comm::largest_of_ranks(measured.world, std::array{*seconds}).front();
  measure_sharing(link, measured, *communicator, largest);
  return link;
}

/// 1 KiB, 4 KiB, … and finally `largest` bytes.
std::vector<std::int64_t> fit_sizes(std::int64_t largest) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t bytes = least_bytes; bytes < largest; bytes *= size_factor)
    sizes.push_back(bytes);
  sizes.push_back(std::max(largest, least_bytes));
  return sizes;
}

}  // namespace

Machine measure_machine(const session::Job& job,
                        comm::World& world,
                        Log& log,
                        const FitRequest& request) {
  session::expect_cpus(world, "bench reduce --fit", job.run.device, device::count_cuda_devices());
  const int threads = session::choose_threads(job.run.threads, world);
  omp_set_num_threads(threads);
  const session::TemporaryCache cache(job, world);
  const batches::Split data = session::open_data(job, cache.path(), world, log);
  const auto device = session::open_device(session::DeviceChoice::cpu, threads, world);
  const DType dtype = session::choose_dtype(job.run.precision, *device, world);
  Machine machine{.processor = device->description(), .links = {}, .compute = {}};
  machine.cpus =
      std::min<std::int64_t>(std::int64_t{session::choose_threads({}, world)} * world.local_size(),
                             std::max(std::thread::hardware_concurrency(), 1U));
  machine.ranks_per_host = world.local_size();
  IsolatedStep isolated(job, data, world, dtype);
  machine.compute = {isolated.measure(request.steps)};
  if (world.size() == 1)
    return machine;

  CollectivesBenchRequest bench = request.collectives;
  bench.baselines = false;
  bench.reduction = plan::reduction_of(job);
  bench.dtypes = {DType::f32};
  if (dtype == DType::bf16 || job.parallel.gradient_dtype == reduce::GradientDType::bf16)
    bench.dtypes.push_back(DType::bf16);
  const layout::Plan plan = session::plan_of(job, world, *device);
  if (!plan.replica_ranks().equal())
    throw UserError(
        fmt::format("trireme bench reduce --fit measures replicas of one size, but there "
                    "are {}. Change parallel.replicate.",
                    plan.replica_ranks().text()));
  const int replicas = plan.replicas();
  const std::int64_t largest = plan.largest_bucket() * static_cast<std::int64_t>(sizeof(float));
  if (request.chooses_sizes)
    bench.bytes = fit_sizes(largest);
  const Measured measured{isolated, world, *device,
                          machine.compute.front().seconds(isolated_micro_steps), request.steps};
  const plan::Wires wires =
      plan::wires_of(hosts_of(world, threads), replicas, job.parallel.transport, bench.reduction);
  bench.transports = {job.parallel.transport};
  if (replicas == 1) {
    machine.links = {measure_link(measured, world, wires.inside, bench, largest)};
    return machine;
  }
  auto* mpi = dynamic_cast<comm::MpiWorld*>(&world);
  TRIREME_EXPECT(mpi != nullptr, "{} replicas without MPI", replicas);
  const int in_a_replica = world.size() / replicas;
  comm::MpiWorld copy(*mpi, world.rank() / in_a_replica);
  comm::MpiWorld peers(*mpi, wires.across->ranks == world.size() ? 0 : world.rank() % in_a_replica);
  if (in_a_replica > 1)
    machine.links = {measure_link(measured, copy, wires.inside, bench, largest)};
  // Whole buckets if sums have a guaranteed order, else shards.
  const std::int64_t parts = world.size() / wires.across->ranks;
  bench.transports = {comm::Transport::mpi};
  for (std::int64_t& bytes : bench.bytes) bytes = std::max(bytes / parts, least_bytes);
  machine.links.push_back(measure_link(measured, peers, *wires.across, bench, largest / parts));
  return machine;
}

}  // namespace trireme::bench
