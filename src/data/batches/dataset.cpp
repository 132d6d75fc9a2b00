// SPDX-License-Identifier: Apache-2.0
#include "batches/dataset.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tokens/stored_hash.hpp"

namespace trireme::batches {

namespace {

using RowStarts = std::vector<std::int64_t>;

/// The rows that are in [begin, begin + count): the first, and how many.
std::pair<std::int64_t, std::int64_t> rows_in(const RowStarts& rows,
                                              std::int64_t begin,
                                              std::int64_t count,
                                              std::int64_t context) {
  const auto first = std::ranges::lower_bound(rows, begin);
  const auto last = std::ranges::lower_bound(rows, begin + count - context);
  return {first - rows.begin(), std::max<std::ptrdiff_t>(last - first, 0)};
}

/// How many windows there would be.
std::int64_t count_windows(std::int64_t begin,
                           std::int64_t count,
                           std::int64_t context,
                           const RowStarts* rows) {
  if (rows != nullptr)
    return rows_in(*rows, begin, count, context).second;
  return count > context ? (count - 1) / context : 0;
}

void check_vocabulary(const Stream& stream, const DataRequirements& requirements, Findings& found) {
  if (stream.tokens->vocabulary() > requirements.vocabulary)
    found.add({}, "model.vocabulary",
              fmt::format("{} is too small: the data contain tokens up to {}",
                          requirements.vocabulary, stream.tokens->vocabulary() - 1));
}

/// Of a part of a mixture, or of data that are for validation alone.
void check_size(const Stream& stream, const DataRequirements& requirements, Findings& found) {
  const std::int64_t size = stream.tokens->size();
  if (count_windows(0, size, requirements.context, stream.rows.get()) < 1)
    found.add({}, stream.key,
              fmt::format("{} tokens are too few for one sequence of context {}. Give more text",
                          size, requirements.context));
}

void check_source(const Stream& stream,
                  std::int64_t train,
                  const DataRequirements& requirements,
                  Findings& found) {
  const std::int64_t samples = count_windows(0, train, requirements.context, stream.rows.get());
  if (samples < requirements.sequences)
    found.add({}, stream.key,
              fmt::format("{} training tokens make {} sequences of context {}, but the largest "
                          "step needs {}. Give more text or a smaller batch",
                          train, samples, requirements.context, requirements.sequences));
  const std::int64_t size = stream.tokens->size();
  if (requirements.validation_fraction > 0 &&
      count_windows(train, size - train, requirements.context, stream.rows.get()) < 1)
    found.add({}, "data.validation_fraction",
              fmt::format("{} of {} tokens is {}, a sequence of context {} needs {}; give a "
                          "larger fraction, more text, or 0 for no validation",
                          requirements.validation_fraction, size, size - train,
                          requirements.context, requirements.context + 1));
}

}  // namespace

Windows::Windows(std::shared_ptr<const tokens::TokenStream> stream,
                 std::int64_t begin,
                 std::int64_t count,
                 std::int64_t context,
                 std::shared_ptr<const RowStarts> rows)
    : stream_(std::move(stream)),
      rows_(std::move(rows)),
      begin_(begin),
      count_(count),
      context_(context) {
  TRIREME_EXPECT(stream_ != nullptr && context > 0,
                 "a dataset needs a stream and a context, not {}", context);
  TRIREME_EXPECT(begin >= 0 && count >= 0 && begin + count <= stream_->size(),
                 "tokens [{}, {}) of a stream of {}", begin, begin + count, stream_->size());
  size_ = count_windows(begin, count, context, rows_.get());
  if (rows_)
    first_row_ = rows_in(*rows_, begin, count, context).first;
  TRIREME_EXPECT(size_ >= 1, "{} tokens hold no window of {}", count, context + 1);
}

std::uint64_t Windows::content_hash() const {
  tokens::StoredHash hash;
  hash.add(stream_->content_hash())
      .add(static_cast<std::uint64_t>(begin_))
      .add(static_cast<std::uint64_t>(count_));
  if (rows_)
    hash.add("documents");
  return hash.value();
}

void Windows::fill(std::int64_t window,
                   std::span<std::int32_t> tokens,
                   std::span<std::int32_t> targets) const {
  const auto length = static_cast<std::size_t>(context_);
  TRIREME_EXPECT(tokens.size() == length && targets.size() == length,
                 "room for {} tokens and {} targets, the context is {}", tokens.size(),
                 targets.size(), context_);
  stream_->read(start(window), tokens);
  std::copy(tokens.begin() + 1, tokens.end(), targets.begin());
  stream_->read(start(window) + context_, targets.last(1));
}

Dataset::Dataset(std::vector<Windows> parts,
                 std::vector<std::int64_t> quotas,
                 std::optional<std::uint64_t> shuffle_seed,
                 Skips skips)
    : parts_(std::move(parts)),
      mixture_(shuffle_seed.value_or(0), std::move(quotas)),
      skips_(std::move(skips)),
      seed_(shuffle_seed.value_or(0)),
      seen_(parts_.size()) {
  TRIREME_EXPECT(mixture_.quotas().size() == parts_.size(), "{} quotas for {} parts",
                 mixture_.quotas().size(), parts_.size());
  for (const Windows& part : parts_)
    orders_.push_back(shuffle_seed ? std::optional(SampleOrder(*shuffle_seed, part.size()))
                                   : std::nullopt);
}

std::int64_t Dataset::num_tokens() const {
  std::int64_t sum = 0;
  for (const Windows& part : parts_) sum += part.num_tokens();
  return sum;
}

std::int64_t Dataset::num_samples() const {
  std::int64_t sum = 0;
  for (const Windows& part : parts_) sum += part.size();
  return sum;
}

Dataset::Window Dataset::window(std::int64_t sample) const {
  TRIREME_EXPECT(sample >= base_, "sample {} before {}", sample, base_);
  const MixtureOrder::Place place = mixture_.at(sample - base_);
  const std::int64_t number = seen_[place.part] + place.sample, size = parts_[place.part].size();
  const auto& order = orders_[place.part];
  return {place.part, order ? (*order)(number / size, number % size) : number % size,
          number / size};
}

void Dataset::fill(std::int64_t sample,
                   std::span<std::int32_t> tokens,
                   std::span<std::int32_t> targets) const {
  const Window found = window(sample);
  parts_[found.part].fill(found.number, tokens, targets);
}

std::vector<std::int64_t> Dataset::seen(std::int64_t samples) const {
  auto counts = mixture_.counts(std::max<std::int64_t>(samples - base_, 0));
  for (std::size_t part = 0; part < counts.size(); ++part) counts[part] += seen_[part];
  return counts;
}

std::uint64_t Dataset::content_hash() const {
  if (parts_.size() == 1)
    return parts_.front().content_hash();
  tokens::StoredHash hash;
  for (std::size_t part = 0; part < parts_.size(); ++part)
    hash.add(parts_[part].content_hash()).add(static_cast<std::uint64_t>(mixture_.quotas()[part]));
  return hash.value();
}

std::uint64_t content_hash(const Split& split) {
  return tokens::StoredHash()
      .add(split.train.content_hash())
      .add(split.validation ? split.validation->content_hash() : 0)
      .value();
}

std::int64_t validation_begin(std::int64_t num_tokens, double validation_fraction) {
  const double wanted = std::round(static_cast<double>(num_tokens) * validation_fraction);
  return num_tokens - std::clamp<std::int64_t>(static_cast<std::int64_t>(wanted), 0, num_tokens);
}

Split split(const std::vector<Stream>& train,
            const std::optional<Stream>& validation,
            const DataRequirements& requirements) {
  TRIREME_EXPECT(!train.empty() && train.front().tokens != nullptr, "a split of no stream");
  const bool mixed = train.size() > 1;
  DataRequirements wanted = requirements;
  if (mixed || validation)
    wanted.validation_fraction = 0;
  std::vector<double> weights;
  weights.reserve(train.size());
  for (const Stream& stream : train) weights.push_back(stream.weight);
  auto quotas = quotas_of(weights);
  const std::int64_t size = train.front().tokens->size();
  const std::int64_t by_documents = train.front().validation_tokens;
  const std::int64_t border = mixed ? size
                              : by_documents >= 0 && wanted.validation_fraction > 0
                                  ? size - by_documents
                                  : validation_begin(size, wanted.validation_fraction);

  Findings found;
  for (const Stream& stream : train) check_vocabulary(stream, requirements, found);
  if (!mixed)
    check_source(train.front(), border, wanted, found);
  for (std::size_t i = 0; i < train.size() && mixed; ++i) {
    check_size(train[i], wanted, found);
    if (quotas[i] == 0)
      found.add(
          {}, train[i].key,
          fmt::format("weight {} is less than one sample in {} of the mixture. Increase it, or "
                      "remove the part",
                      train[i].weight, MixtureOrder::block));
  }
  if (validation) {
    check_vocabulary(*validation, requirements, found);
    check_size(*validation, requirements, found);
  }
  found.settle();

  std::vector<Windows> parts;
  parts.reserve(train.size());
  for (const Stream& stream : train)
    parts.emplace_back(stream.tokens, 0, mixed ? stream.tokens->size() : border,
                       requirements.context, stream.rows);
  std::optional<Dataset> checked;
  const auto front_to_back = [&](const Stream& stream, std::int64_t begin) {
    checked.emplace(std::vector{Windows(stream.tokens, begin, stream.tokens->size() - begin,
                                        requirements.context, stream.rows)},
                    std::vector{MixtureOrder::block}, std::nullopt);
  };
  if (validation)
    front_to_back(*validation, 0);
  else if (wanted.validation_fraction > 0)
    front_to_back(train.front(), border);
  return {Dataset(std::move(parts), std::move(quotas), requirements.seed, requirements.skips),
          std::move(checked)};
}

}  // namespace trireme::batches
