// SPDX-License-Identifier: Apache-2.0
#include "reduce/replicas.hpp"

#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/error.hpp"

#include "ops/optimizer/reductions.hpp"

#include "comm/control/agreement.hpp"

namespace trireme::reduce {

Replicas::Replicas(Engine& engine,
                   comm::World& world,
                   device::Device& device,
                   device::Stream& compute)
    : engine_(engine),
      world_(world),
      compute_(compute),
      hashes_(device.allocate_shared_with_host(
          engine.plan().buckets().size() * sizeof(std::uint64_t), "hashes of buckets")) {}

std::uint64_t Replicas::hash_of(ConstView values) {
  auto& hash = *reinterpret_cast<std::uint64_t*>(hashes_.data());
  ops::hash_elements(hash, values, compute_);
  compute_.synchronize();
  return hash;
}

void Replicas::check(std::int64_t step) {
  engine_.wait_for_parameters();
  if (world_.size() == 1)
    return;
  const std::size_t buckets = engine_.plan().buckets().size();
  auto* hashes = reinterpret_cast<std::uint64_t*>(hashes_.data());
  for (std::size_t b = buckets; b-- > 0;) {
    const auto bucket = static_cast<BucketIndex>(b);
    engine_.before_use(engine_.plan().bucket(bucket).parameters);
    ops::hash_elements(hashes[b], engine_.bucket_parameters(bucket), compute_);
  }
  compute_.synchronize();
  const auto different = comm::differing(world_, {hashes, buckets});
  if (!different.empty())
    name_differences(static_cast<BucketIndex>(different.front()), std::ssize(different), step);
}

void Replicas::name_differences(BucketIndex first, std::int64_t buckets, std::int64_t step) {
  const layout::Plan& plan = engine_.plan();
  const std::string what =
      fmt::format("hold the same parameters on all ranks after step {} ({} of {} buckets differ)",
                  step, buckets, plan.buckets().size());
  std::vector<comm::Fact> facts;
  engine_.before_use(plan.bucket(first).parameters);
  for (const ParameterIndex parameter : plan.bucket(first).parameters)
    facts.push_back({fmt::format("{} in bucket {}", plan.parameter(parameter).name, at(first)),
                     fmt::format("hash {:016x}", hash_of(engine_.parameter(parameter))),
                     comm::Fact::Owner::machine});
  // If all parameters agree, the padding differs.
  facts.push_back({fmt::format("bucket {} with its padding", at(first)),
                   fmt::format("hash {:016x}", hash_of(engine_.bucket_parameters(first))),
                   comm::Fact::Owner::machine});
  comm::expect_agreement(world_, facts, what);
  throw CommError("the machine", what, "the hashes differed, but agree when computed again");
}

}  // namespace trireme::reduce
