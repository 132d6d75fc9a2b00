// SPDX-License-Identifier: Apache-2.0
#include "comm/collective/exchange.hpp"

#include <algorithm>
#include <utility>

#include "base/round_up.hpp"

#include "comm/control/requests.hpp"

namespace trireme::comm {
namespace {

/// A rank's starts are chunks ahead of its own sums, so the two kinds may overtake each other.
constexpr int started_tag = 12, passed_tag = 14;
/// Lower limit of the size of messages, unless the blocks or the caller's chunks are smaller.
constexpr std::size_t smallest_chunk_bytes = 8192;
/// The number of chunks by which a rank's messages may be ahead of its own sums.
constexpr std::int64_t chunks_ahead = 8;

}  // namespace

/// Progress of a collective; cursors count over all chunks.
struct Exchange::Run {
  const Table& table;
  View full;
  std::span<const std::ptrdiff_t> distances;
  std::int64_t shard;
  std::int64_t chunks = divided_up(shard, table.chunk_elements);
  std::int64_t continued = 0;  ///< tasks that need messages and have ended
  std::int64_t arrived = 0;    ///< messages received

  [[nodiscard]] std::int64_t starts() const {
    return chunks * static_cast<std::int64_t>(table.routes.starts.size());
  }
  [[nodiscard]] std::int64_t continues() const {
    return chunks * static_cast<std::int64_t>(table.routes.continues.size());
  }
  [[nodiscard]] std::int64_t incoming() const {
    return chunks * static_cast<std::int64_t>(table.incoming.size());
  }
  /// The chunk that is being summed.
  [[nodiscard]] std::int64_t chunk() const {
    return continued / static_cast<std::int64_t>(table.routes.continues.size());
  }
  [[nodiscard]] View piece(int block, std::int64_t chunk) const {
    const std::int64_t begin = chunk * table.chunk_elements;
    return full.slice(block * shard + begin, std::min(table.chunk_elements, shard - begin));
  }
  [[nodiscard]] const std::byte* own(const SumStep& step_of, const View& piece_of) const {
    return piece_of.data + distances[static_cast<std::size_t>(step_of.source)];
  }
  [[nodiscard]] int bytes(const View& of, bool partial) const {
    return static_cast<int>(static_cast<std::size_t>(of.elements) *
                            (partial ? sizeof(float) : size_bytes(of.dtype)));
  }
};

Exchange::Exchange(MPI_Comm comm,
                   Progress& progress,
                   Reduction reduction,
                   const Hosts& hosts,
                   device::Device& device,
                   std::size_t chunk_bytes,
                   std::size_t scratch_bytes)
    : comm_(comm), progress_(progress), rank_(rank_of(comm)), size_(size_of(comm)) {
  TRIREME_EXPECT(hosts.ranks() == size_, "hosts of {} ranks for {}", hosts.ranks(), size_);
  if (hosts.count() == 1)
    return;
  f32_ = make_table(make_routes(reduction, DType::f32, hosts, rank_), DType::f32, chunk_bytes);
  bf16_ = make_table(make_routes(reduction, DType::bf16, hosts, rank_), DType::bf16, chunk_bytes);
  message_bytes_ = chunk_bytes;
  take_scratch(device, scratch_bytes);
}

Exchange::Table Exchange::make_table(Routes routes, DType dtype, std::size_t chunk_bytes) {
  Table table;
  // All messages of a block's chunk together have about 4 * chunk_bytes, however many there are.
  const std::size_t bytes =
      std::min(chunk_bytes, std::max(4 * chunk_bytes / routes.fan / 64 * 64, smallest_chunk_bytes));
  table.chunk_elements =
      static_cast<std::int64_t>(bytes / (routes.partials ? sizeof(float) : size_bytes(dtype)));
  for (const BlockTask& task : routes.continues)
    for (std::uint32_t i = task.first; i < task.first + task.count; ++i)
      if (const SumStep& step = routes.steps[i]; step.incoming)
        table.incoming.push_back(
            {step.source, task.block, step.partial, step.passed ? passed_tag : started_tag});
  table.routes = std::move(routes);
  return table;
}

void Exchange::take_scratch(device::Device& device, std::size_t scratch_bytes) {
  const auto elements = std::max(f32_.chunk_elements, bf16_.chunk_elements);
  message_bytes_ = static_cast<std::size_t>(elements) * sizeof(float);
  const std::size_t most = std::max<std::size_t>(scratch_bytes / message_bytes_, 2);
  bool stages = false, passes = false;
  std::uint32_t longest = 0;
  std::int64_t most_needed = 0;
  for (const Table* table : {&f32_, &bf16_})
    for (const auto* tasks : {&table->routes.starts, &table->routes.continues})
      for (const BlockTask& task : *tasks) {
        longest = std::max(longest, task.count);
        most_needed = std::max(most_needed, task.messages);
        if (task.to >= 0 && !task.unchanged)
          (tasks == &table->routes.starts ? stages : passes) = true;
      }
  sources_.resize(longest);
  const auto open = [&](Window& window, auto count_of, std::int64_t least) {
    const std::size_t count = std::max<std::size_t>({count_of(f32_), count_of(bf16_), 1});
    window.requests.assign(std::max(static_cast<std::size_t>(least),
                                    std::min(most, count * static_cast<std::size_t>(chunks_ahead))),
                           MPI_REQUEST_NULL);
  };
  open(
      starting_, [](const Table& table) { return table.routes.starts.size(); }, 1);
  open(
      receiving_, [](const Table& table) { return table.incoming.size(); }, most_needed);
  open(
      passing_, [](const Table& table) { return table.routes.continues.size(); }, 1);
  std::size_t bytes = receiving_.requests.size() * message_bytes_;
  const std::size_t staged = bytes;
  bytes += stages ? starting_.requests.size() * message_bytes_ : 0;
  const std::size_t passed = bytes;
  bytes += passes ? passing_.requests.size() * message_bytes_ : 0;
  scratch_ = device.allocate(bytes, "exchange messages");
  receiving_.memory = scratch_.data();
  starting_.memory = scratch_.data() + staged;
  passing_.memory = scratch_.data() + passed;
}

bool Exchange::Window::end_some() {
  const std::int64_t before = ended;
  while (ended < begun && completed(requests[slot(ended)])) ++ended;
  return ended > before;
}

void Exchange::start(Run& run) {
  const Routes& routes = run.table.routes;
  const auto count = static_cast<std::int64_t>(routes.starts.size());
  while (starting_.begun < run.starts() && !starting_.full() &&
         starting_.begun / count < run.chunk() + chunks_ahead) {
    const BlockTask& task = routes.starts[static_cast<std::size_t>(starting_.begun % count)];
    const View piece = run.piece(task.block, starting_.begun / count);
    const std::size_t slot = starting_.slot(starting_.begun);
    const std::byte* at = nullptr;
    if (task.unchanged) {
      at = run.own(routes.steps[task.first], piece);
    } else {
      std::byte* staged = starting_.memory + slot * message_bytes_;
      make_sum(run, task, piece, staged);
      at = staged;
    }
    TRIREME_MPI(MPI_Isend(at, run.bytes(piece, task.partial), MPI_BYTE, task.to, started_tag, comm_,
                          &starting_.requests[slot]));
    ++starting_.begun;
  }
}

void Exchange::receive(Run& run) {
  const auto count = static_cast<std::int64_t>(run.table.incoming.size());
  for (; receiving_.begun < run.incoming() && !receiving_.full(); ++receiving_.begun) {
    const Incoming& next = run.table.incoming[static_cast<std::size_t>(receiving_.begun % count)];
    const View piece = run.piece(next.block, receiving_.begun / count);
    const std::size_t slot = receiving_.slot(receiving_.begun);
    TRIREME_MPI(MPI_Irecv(receiving_.memory + slot * message_bytes_, run.bytes(piece, next.partial),
                          MPI_BYTE, next.from, next.tag, comm_, &receiving_.requests[slot]));
  }
}

void Exchange::make_sum(const Run& run, const BlockTask& task, View piece, std::byte* out) {
  const std::span steps = std::span(run.table.routes.steps).subspan(task.first, task.count);
  std::int64_t message = receiving_.ended;
  for (std::size_t i = 0; i < steps.size(); ++i)
    sources_[i] = steps[i].incoming
                      ? receiving_.memory + receiving_.slot(message++) * message_bytes_
                  : steps[i].kind == SumStep::Kind::merge ? nullptr
                                                          : run.own(steps[i], piece);
  const std::span sources = std::span(sources_).first(steps.size());
  if (task.in_order)
    sum_in_order(out, sources, piece.elements, piece.dtype);
  else
    sum_in_steps(out, task.partial ? DType::f32 : piece.dtype, steps, sources, piece.elements,
                 piece.dtype);
}

/// Makes the sums whose messages have arrived. Returns whether there were any.
bool Exchange::continue_sums(Run& run) {
  const auto& tasks = run.table.routes.continues;
  for (bool moved = false;; moved = true) {
    if (run.continued == run.continues())
      return moved;
    const BlockTask& task = tasks[static_cast<std::size_t>(run.continued) % tasks.size()];
    const std::int64_t needed = receiving_.ended + task.messages;
    while (run.arrived < std::min(needed, receiving_.begun) &&
           completed(receiving_.requests[receiving_.slot(run.arrived)]))
      ++run.arrived;
    const bool passes = task.to >= 0;
    if (run.arrived < needed || (passes && passing_.full()))
      return moved;
    const View piece = run.piece(task.block, run.chunk());
    const std::size_t slot = passing_.slot(passing_.begun);
    std::byte* out = passes ? passing_.memory + slot * message_bytes_ : piece.data;
    make_sum(run, task, piece, out);
    receiving_.ended = needed;
    ++run.continued;
    if (!passes)
      continue;
    TRIREME_MPI(MPI_Isend(out, run.bytes(piece, task.partial), MPI_BYTE, task.to, passed_tag, comm_,
                          &passing_.requests[slot]));
    ++passing_.begun;
  }
}

void Exchange::reduce_scatter(View full, std::span<const std::ptrdiff_t> distances) {
  const Table& table = full.dtype == DType::f32 ? f32_ : bf16_;
  if (size_ == 1 || full.empty())
    return;
  TRIREME_EXPECT(full.dtype != DType::i64 && !table.routes.continues.empty(),
                 "an exchange of {} inside one host", name(full.dtype));
  const CancelOnExit starts(starting_.requests), receives(receiving_.requests),
      passed(passing_.requests);
  for (Window* window : {&starting_, &receiving_, &passing_}) window->begun = window->ended = 0;
  Run run{table, full, distances, full.elements / size_};
  for (;;) {
    receive(run);
    start(run);
    bool moved = continue_sums(run);
    moved = starting_.end_some() || moved;
    moved = passing_.end_some() || moved;
    if (run.continued == run.continues() && starting_.ended == run.starts() &&
        passing_.ended == passing_.begun)
      return;
    if (moved)
      progress_.moved();
    else
      progress_.pause();
  }
}

}  // namespace trireme::comm
