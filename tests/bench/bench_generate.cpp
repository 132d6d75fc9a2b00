// SPDX-License-Identifier: Apache-2.0
#include "bench_generate.hpp"

#include <functional>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <omp.h>

#include "model/decoder.hpp"
#include "model/gpt.hpp"
#include "model/layers.hpp"
#include "ops/cached_attention.hpp"

#include "bench/race.hpp"

namespace trireme::bench {
namespace {

/// The measured operations, at the last position of a full context.
class Contest {
 public:
  Contest(const model::GptShape& shape,
          DType dtype,
          device::Device& device,
          std::int64_t texts,
          const ops::Options& options)
      : shape_(shape),
        stream_(device.make_stream(device::StreamMode::inlined, "bench")),
        gpt_(device, shape, dtype, 1, 0, nullptr, options),
        tokens_(device.allocate(static_cast<std::size_t>(shape.context) * sizeof(std::int32_t),
                                "tokens")),
        logits_(device.allocate(static_cast<std::size_t>(texts * shape.vocabulary) * sizeof(float),
                                "logits")),
        prompt_(static_cast<std::size_t>(shape.context)) {
    std::vector<ConstView> parameters;
    for (const layout::Parameter& parameter : model::parameter_table(shape)) {
      memory_.push_back(device.allocate(
          static_cast<std::size_t>(parameter.elements()) * size_bytes(dtype), parameter.name));
      const View values = memory_.back().view(dtype, 0, parameter.elements());
      fill_small_numbers(values, *stream_);
      parameters.emplace_back(values);
    }
    device.fill_zero(tokens_.view(DType::i32), *stream_);
    stream_->synchronize();
    gpt_.bind(parameters, {});
    add("a token, whole context", 1, [this] {
      gpt_.next_logits(tokens_.view(DType::i32, 0, shape_.context), logits(1), hooks_, *stream_);
    });
    if (!ops::has_cached_attention(device))
      return;
    decoder_.emplace(device, shape, dtype, nn::CacheSize{texts, shape.context});
    decoder_->bind(parameters);
    // The time does not depend on the cached values, so the texts need not be read first.
    add("a token, keys and values kept", 1, [this] { step(1); });
    if (texts > 1)
      add(fmt::format("a token of each of {} texts, kept", texts), texts,
          [this, texts] { step(texts); });
    add(fmt::format("reading a prompt of {} tokens", shape.context), shape.context,
        [this] { decoder_->read(0, 0, prompt_, logits(1), hooks_, *stream_); });
  }

  void race(comm::World& world, int repetitions) {
    const auto seconds = bench::race(entrants_, *stream_, world, {.repetitions = repetitions});
    for (std::size_t i = 0; i < seconds.size(); ++i) rows[i].seconds = seconds[i];
  }

  std::vector<GenerateBenchRow> rows;

 private:
  void add(std::string what, std::int64_t tokens, std::function<void()> run) {
    rows.push_back({std::move(what), tokens, 0});
    entrants_.push_back(std::move(run));
  }
  [[nodiscard]] View logits(std::int64_t texts) const {
    return logits_.view(DType::f32, 0, texts * shape_.vocabulary);
  }
  void step(std::int64_t texts) {
    std::vector<model::Decoder::Row> at;
    for (std::int64_t i = 0; i < texts; ++i)
      at.push_back(
          {static_cast<std::int32_t>(i), static_cast<std::int32_t>(shape_.context - 1), 0});
    decoder_->step(at, logits(texts), hooks_, *stream_);
  }

  const model::GptShape shape_;
  std::unique_ptr<device::Stream> stream_;
  nn::Hooks hooks_;
  model::Gpt gpt_;
  std::optional<model::Decoder> decoder_;
  device::Buffer tokens_, logits_;
  std::vector<std::int32_t> prompt_;
  std::vector<device::Buffer> memory_;
  std::vector<std::function<void()>> entrants_;
};

}  // namespace

GenerateBench bench_generate(const model::GptShape& shape,
                             DType dtype,
                             device::Device& device,
                             comm::World& world,
                             std::int64_t texts,
                             int repetitions,
                             const ops::Options& options) {
  GenerateBench bench{dtype, world.size(), omp_get_max_threads(), shape.context, {}, 0};
  Contest contest(shape, dtype, device, texts, options);
  contest.race(world, repetitions);
  bench.rows = std::move(contest.rows);
  if (bench.rows.size() > 1)
    bench.ratio = bench.rows[0].seconds / bench.rows[1].seconds;
  return bench;
}

std::string generate_table(const GenerateBench& bench) {
  std::string text =
      fmt::format("{:<42}{:>12}{:>12}\n", "at the end of the context", "ms", "tokens/s");
  for (const GenerateBenchRow& row : bench.rows)
    text += fmt::format("{:<42}{:>12.2f}{:>12.1f}\n", row.what, row.seconds * 1e3,
                        row.tokens_per_second());
  text += fmt::format("context {}, {}, {} thread{}, {} rank{} at a time", bench.context,
                      name(bench.dtype), bench.threads, bench.threads == 1 ? "" : "s", bench.ranks,
                      bench.ranks == 1 ? "" : "s");
  return text +
         (bench.ratio > 0
              ? fmt::format("; a token is {:.1f} times as fast with a cache of keys and values\n",
                            bench.ratio)
              : "; this device has no cache of keys and values\n");
}

}  // namespace trireme::bench
