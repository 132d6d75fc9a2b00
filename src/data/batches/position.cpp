// SPDX-License-Identifier: Apache-2.0
// The position of a dataset as text: "BASE; HASH QUOTA SEEN; HASH QUOTA SEEN; …", one group for
// each part of the mixture that is in force from sample BASE on.
#include <algorithm>
#include <sstream>

#include "base/error.hpp"

#include "batches/dataset.hpp"

namespace trireme::batches {
namespace {

struct Part {
  std::uint64_t hash = 0;
  std::int64_t quota = 0, seen = 0;
};
struct Position {
  std::int64_t base = 0;
  std::vector<Part> parts;
};

Position parsed(const std::string& text) {
  const auto refuse = [&] {
    throw UserError(fmt::format("'{}' in the checkpoint is not a position in the data", text));
  };
  Position position;
  std::istringstream groups(text);
  std::string group;
  if (!std::getline(groups, group, ';') || !(std::istringstream(group) >> position.base))
    refuse();
  std::int64_t quotas = 0;
  while (std::getline(groups, group, ';')) {
    Part& part = position.parts.emplace_back();
    std::istringstream words(group);
    if (!(words >> std::hex >> part.hash >> std::dec >> part.quota >> part.seen) ||
        part.quota < 1 || part.quota > MixtureOrder::block || part.seen < 0)
      refuse();
    quotas += part.quota;
  }
  if (quotas != MixtureOrder::block || position.base < 0)
    refuse();
  return position;
}

}  // namespace

std::string Dataset::position() const {
  std::string text = fmt::format("{}", base_);
  for (std::size_t part = 0; part < parts_.size(); ++part)
    text += fmt::format("; {:016x} {} {}", parts_[part].content_hash(), mixture_.quotas()[part],
                        seen_[part]);
  return text;
}

void Dataset::continue_from(const std::string& position, std::int64_t next_sample) {
  if (position.empty())
    return;
  const Position then = parsed(position);
  std::vector<std::int64_t> quotas;
  quotas.reserve(then.parts.size());
  for (const Part& part : then.parts) quotas.push_back(part.quota);
  bool same = then.parts.size() == parts_.size();
  for (std::size_t part = 0; same && part < parts_.size(); ++part)
    same = then.parts[part].hash == parts_[part].content_hash() &&
           then.parts[part].quota == mixture_.quotas()[part];
  if (same) {
    base_ = then.base;
    for (std::size_t part = 0; part < parts_.size(); ++part) seen_[part] = then.parts[part].seen;
    return;
  }
  const auto since =
      MixtureOrder(seed_, quotas).counts(std::max<std::int64_t>(next_sample - then.base, 0));
  base_ = next_sample;
  for (std::size_t part = 0; part < parts_.size(); ++part) {
    const auto known = std::ranges::find(then.parts, parts_[part].content_hash(), &Part::hash);
    if (known != then.parts.end())
      seen_[part] = known->seen + since[static_cast<std::size_t>(known - then.parts.begin())];
  }
}

}  // namespace trireme::batches
