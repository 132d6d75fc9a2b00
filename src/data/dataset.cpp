// SPDX-License-Identifier: Apache-2.0
#include "data/dataset.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "data/hash.hpp"

namespace trireme::data {

namespace {
std::int64_t windows_in(std::int64_t tokens, std::int64_t context) {
  return tokens > context ? (tokens - 1) / context : 0;
}
}  // namespace

Dataset::Dataset(std::shared_ptr<const TokenStream> stream,
                 std::int64_t begin,
                 std::int64_t count,
                 std::int64_t context,
                 std::optional<std::uint64_t> shuffle_seed)
    : stream_(std::move(stream)), begin_(begin), count_(count), context_(context), num_samples_(0) {
  TRIREME_EXPECT(stream_ != nullptr && context > 0,
                 "a dataset needs a stream and a context, not {}", context);
  TRIREME_EXPECT(begin >= 0 && count >= 0 && begin + count <= stream_->size(),
                 "tokens [{}, {}) of a stream of {}", begin, begin + count, stream_->size());
  num_samples_ = windows_in(count, context);
  TRIREME_EXPECT(num_samples_ >= 1, "{} tokens hold no window of {}", count, context + 1);
  if (shuffle_seed)
    order_.emplace(*shuffle_seed, num_samples_);
}

std::int64_t Dataset::window(std::int64_t sample) const {
  TRIREME_EXPECT(sample >= 0, "sample {}", sample);
  const std::int64_t epoch = sample / num_samples_, place = sample % num_samples_;
  return order_ ? (*order_)(epoch, place) : place;
}

std::uint64_t Dataset::content_hash() const {
  return Hash()
      .add(stream_->content_hash())
      .add(static_cast<std::uint64_t>(begin_))
      .add(static_cast<std::uint64_t>(count_))
      .value();
}

std::uint64_t content_hash(const Split& split) {
  return Hash()
      .add(split.train.content_hash())
      .add(split.validation ? split.validation->content_hash() : 0)
      .value();
}

void Dataset::fill(std::int64_t sample,
                   std::span<std::int32_t> tokens,
                   std::span<std::int32_t> targets) const {
  const auto length = static_cast<std::size_t>(context_);
  TRIREME_EXPECT(tokens.size() == length && targets.size() == length,
                 "room for {} tokens and {} targets, the context is {}", tokens.size(),
                 targets.size(), context_);
  const std::int64_t begin = begin_ + window(sample) * context_;
  stream_->read(begin, tokens);
  std::copy(tokens.begin() + 1, tokens.end(), targets.begin());
  stream_->read(begin + context_, targets.last(1));
}

std::int64_t validation_begin(std::int64_t num_tokens, double validation_fraction) {
  const double wanted = std::round(static_cast<double>(num_tokens) * validation_fraction);
  return num_tokens - std::clamp<std::int64_t>(static_cast<std::int64_t>(wanted), 0, num_tokens);
}

std::vector<Diagnostic> findings(std::int64_t num_tokens,
                                 std::int64_t stream_vocabulary,
                                 const Demand& demand) {
  std::vector<Diagnostic> found;
  const std::int64_t train = validation_begin(num_tokens, demand.validation_fraction);
  const std::int64_t validation = num_tokens - train;
  if (stream_vocabulary > demand.vocabulary)
    found.push_back({{},
                     "model.vocabulary",
                     fmt::format("{} does not hold the data, whose tokens reach up to {}",
                                 demand.vocabulary, stream_vocabulary - 1)});
  const std::int64_t samples = windows_in(train, demand.context);
  if (samples < demand.sequences)
    found.push_back(
        {{},
         "data.train",
         fmt::format("{} training tokens make {} sequences of context {}, a step takes {} "
                     "(batch.sequences); give more text or a smaller batch",
                     train, samples, demand.context, demand.sequences)});
  if (demand.validation_fraction > 0 && windows_in(validation, demand.context) < 1)
    found.push_back({{},
                     "data.validation_fraction",
                     fmt::format("{} of {} tokens is {}, a sequence of context {} needs {}; give a "
                                 "larger fraction, more text, or 0 for no validation",
                                 demand.validation_fraction, num_tokens, validation, demand.context,
                                 demand.context + 1)});
  return found;
}

Split split(const std::shared_ptr<const TokenStream>& stream, const Demand& demand) {
  TRIREME_EXPECT(stream != nullptr, "a split of no stream");
  const std::int64_t size = stream->size();
  if (auto found = findings(size, stream->vocabulary(), demand); !found.empty())
    throw UserError(std::move(found));
  const std::int64_t train = validation_begin(size, demand.validation_fraction);
  std::optional<Dataset> validation;
  if (demand.validation_fraction > 0)
    validation.emplace(stream, train, size - train, demand.context, std::nullopt);
  return {Dataset(stream, 0, train, demand.context, demand.seed), std::move(validation)};
}

}  // namespace trireme::data
