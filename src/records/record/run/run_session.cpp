// SPDX-License-Identifier: Apache-2.0
#include "record/run/run_session.hpp"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "h5/attribute.hpp"
#include "h5/dataset.hpp"
#include "record/run/date.hpp"
#include "record/run/run_identity.hpp"
#include "record/run/run_schema.hpp"

namespace trireme::record {
namespace {

/// Distinct hosts in rank order.
std::string machine(const std::vector<std::string>& hosts) {
  std::vector<std::string> seen;
  std::string text;
  for (const std::string& host : hosts)
    if (std::ranges::find(seen, host) == seen.end()) {
      seen.push_back(host);
      text += (text.empty() ? "" : " ") + host;
    }
  return text;
}

void write_deck(const h5::File& file, const NameValues& deck) {
  const h5::Group group = h5::open_group(file.get(), "deck");
  h5::delete_attributes(group.get());
  for (const auto& [name, value] : deck) h5::write_attribute(group.get(), name, value);
}

void append_buckets(const h5::File& file,
                    const std::vector<BucketRow>& buckets,
                    std::int64_t first_step) {
  const h5::Group group = h5::open_group(file.get(), "buckets");
  std::vector<std::int64_t> numbers(buckets.size());
  std::iota(numbers.begin(), numbers.end(), std::int64_t{0});
  h5::Dataset::open(group.get(), "first_step")
      .append<std::int64_t>(std::vector<std::int64_t>(buckets.size(), first_step));
  h5::Dataset::open(group.get(), "bucket").append<std::int64_t>(numbers);
  append_rows(group.get(), bucket_columns, std::span<const BucketRow>(buckets));
}

}  // namespace

void write_facts(const h5::File& file, const RunHeader& header) {
  write_identity(file);
  h5::write_attribute(file.get(), "date_and_time", date_and_time());
  h5::write_attribute(file.get(), "machine", machine(header.hosts));
  for (const auto& [name, value] : header.facts) h5::write_attribute(file.get(), name, value);
}

void start_session(const h5::File& file, const RunHeader& header, std::int64_t first_step) {
  write_deck(file, header.deck);
  append_one(file, "sessions/date_and_time", date_and_time());
  append_one(file, "sessions/first_step", first_step);
  append_one(file, "sessions/ranks", static_cast<std::int64_t>(header.hosts.size()));
  append_one(file, "sessions/machine", machine(header.hosts));
  append_one(file, "sessions/facts", lines_of(header.facts));
  append_one(file, "sessions/deck", lines_of(header.deck));
  write_tokenizer(file, header.tokenizer);
  append_buckets(file, header.buckets, first_step);
}

}  // namespace trireme::record
