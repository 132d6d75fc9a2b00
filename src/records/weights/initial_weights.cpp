// SPDX-License-Identifier: Apache-2.0
#include "weights/initial_weights.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/hash.hpp"

#include "comm/control/together.hpp"

#include "record/checkpoint/checkpoint.hpp"
#include "weights/checkpoint_weights.hpp"
#include "weights/open.hpp"
#include "weights/safetensors.hpp"

namespace trireme::weights {
namespace {

/// The mean of the rows of a [rows, columns] tensor, added up in fp64 in their order.
std::vector<float> mean_row(const StoredTensor& tensor, TensorReader& reader) {
  const std::int64_t rows = tensor.shape.at(0);
  std::vector<double> sums(static_cast<std::size_t>(tensor.shape.at(1)));
  reader.each_block(tensor, tensor.elements(), [&](std::int64_t at, std::span<const float> values) {
    auto column = static_cast<std::size_t>(at % std::ssize(sums));
    for (const float value : values) {
      sums[column] += value;
      column = column + 1 == sums.size() ? 0 : column + 1;
    }
  });
  std::vector<float> mean(sums.size());
  std::ranges::transform(sums, mean.begin(), [rows](double sum) {
    return static_cast<float>(sum / static_cast<double>(rows));
  });
  return mean;
}

}  // namespace

record::NameValues Origin::facts() const {
  record::NameValues facts = role_facts(roles);
  facts.emplace_back(record::origin_path_fact, path);
  facts.emplace_back(record::origin_format_fact, format);
  facts.emplace_back(record::origin_hash_fact, fmt::format("{:016x}", hash));
  return facts;
}

std::uint64_t weights_hash(std::span<const layout::Parameter> table,
                           std::span<const std::uint64_t> content_hashes) {
  TRIREME_EXPECT(table.size() == content_hashes.size(), "{} hashes of {} parameters",
                 content_hashes.size(), table.size());
  std::string text;
  for (std::size_t p = 0; p < table.size(); ++p)
    text += fmt::format("{} {} {:016x}\n", table[p].name, shape_text(table[p].shape),
                        content_hashes[p]);
  return hash_bytes(text);
}

StoredModel open_together(const std::string& path,
                          bool with_tokenizer,
                          comm::World& world,
                          const std::function<void(const StoredModel&)>& check) {
  return comm::from_first_rank(world, [&] {
    StoredModel stored = open_model(path, with_tokenizer);
    check(stored);
    return stored;
  });
}

InitialWeights::InitialWeights(StoredModel stored,
                               const model::GptShape& shape,
                               std::uint64_t seed,
                               comm::World& world)
    : stored_(std::move(stored)),
      layers_(shape),
      seed_(seed),
      world_(world),
      table_(layers_.registry.table()),
      reader_(stored_) {
  for (std::size_t p = 0; p < table_.size(); ++p) {
    const StoredTensor& tensor = stored_.tensors.at(p);
    if (tensor.shape == table_[p].shape)
      continue;
    comm::on_first_rank(world_, [&] {  // the sums over all ranks do not include it
      if (tensor.content_hash)
        stored_.expect_hash(tensor, reader_.hash(tensor, tensor.elements()));
    });
    if (tensor.parameter != "wpe.weight" && tensor.shape[0] < table_[p].shape[0])
      added_[p] = comm::from_first_rank(world_, [&] { return mean_row(tensor, reader_); });
  }
}

void InitialWeights::read(ParameterIndex parameter, std::int64_t begin, View values) {
  const StoredTensor& tensor = stored_.tensors.at(at(parameter));
  const std::int64_t there =
      std::clamp<std::int64_t>(tensor.elements() - begin, 0, values.elements);
  const View read = values.slice(0, there);
  reader_.read(tensor, there > 0 ? begin : 0, read);
  const auto* found = read.as<float>();
  for (std::int64_t i = 0; i < there; ++i)
    if (!std::isfinite(found[i]))
      throw UserError(
          fmt::format("{}: tensor '{}': element {} of {} is {}, but weights must be finite",
                      stored_.files.at(static_cast<std::size_t>(tensor.extents.at(0).file)),
                      tensor.name, begin + i, tensor.parameter, found[i]));
  const View added = values.slice(there, values.elements - there);
  if (added.empty())
    return;
  if (const auto row = added_.find(at(parameter)); row != added_.end()) {
    auto* to = added.as<float>();
    const auto columns = std::ssize(row->second);
    for (std::int64_t i = 0; i < added.elements; ++i)
      to[i] = row->second[static_cast<std::size_t>((begin + there + i) % columns)];
    return;
  }
  layers_.registry.initialize(parameter, seed_, added, begin + there);
}

Origin InitialWeights::settle(std::span<const std::uint64_t> hashes) {
  const auto sums = comm::sums_modulo(world_, hashes);
  for (std::size_t p = 0; p < table_.size(); ++p) {
    const StoredTensor& tensor = stored_.tensors[p];
    if (tensor.shape == table_[p].shape)
      stored_.expect_hash(tensor, sums[p]);
  }
  return {stored_.path, stored_.format, weights_hash(table_, sums), stored_.roles};
}

std::vector<std::string> InitialWeights::notes() const {
  std::vector<std::string> lines = stored_.notes;
  for (std::size_t p = 0; p < table_.size(); ++p) {
    const StoredTensor& tensor = stored_.tensors[p];
    if (tensor.shape == table_[p].shape)
      continue;
    const std::int64_t there = tensor.shape[0], here = table_[p].shape[0];
    lines.push_back(here < there
                        ? fmt::format("{}: the last {} of the {} rows in {} are left out",
                                      table_[p].name, there - here, there, stored_.path)
                        : fmt::format("{}: {} rows are added to the {} in {}, {}", table_[p].name,
                                      here - there, there, stored_.path,
                                      added_.contains(p) ? "each the mean of the existing rows"
                                                         : "drawn with run.seed"));
  }
  return lines;
}

}  // namespace trireme::weights
