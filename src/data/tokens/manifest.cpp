// SPDX-License-Identifier: Apache-2.0
#include "tokens/manifest.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/json.hpp"
#include "files/descriptor.hpp"

namespace trireme::tokens {
namespace {

constexpr const char* format_name = "trireme-tokens";
constexpr std::int64_t format_version = 1;

/// The values and their keys.
template <class Shard, class Take>
void each_count(Shard& shard, Take&& take) {
  take("tokens", shard.tokens);
  take("documents", shard.documents);
  take("bytes", shard.bytes);
}
template <class Notes, class Take>
void each_note(Notes& notes, Take&& take) {
  take("documents", notes.documents);
  take("separators", notes.separators);
  take("bad_lines", notes.bad_lines);
  take("bad_places", notes.bad_places);
  take("spelled", notes.spelled);
  take("spelled_as", notes.spelled_as);
}

auto putting_into(Json& json) {
  return [&json](const char* key, const auto& value) { json[key] = value; };
}
auto taking_from(const Json& json) {
  return [&json](const char* key, auto& value) { json.at(key).get_to(value); };
}

Json json_of(const std::vector<ManifestShard>& shards) {
  const ManifestShard sum = sum_of(shards);
  Json json, list = Json::array();
  each_count(sum, putting_into(json));
  for (const ManifestShard& shard : shards) {
    Json& one = list.emplace_back(Json{{"file", shard.file}});
    each_count(shard, putting_into(one));
    one["hash"] = fmt::format("{:016x}", shard.hash);
  }
  json["shards"] = std::move(list);
  return json;
}

std::uint64_t hash_from(const Json& value) {
  const auto text = value.get<std::string>();
  std::uint64_t hash = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, problem] = std::from_chars(text.data(), end, hash, 16);
  if (problem != std::errc() || rest != end || text.size() != 16)
    throw UserError(fmt::format("'{}' is not a hash of 16 hexadecimal digits", text));
  return hash;
}

std::vector<ManifestShard> shards_from(const Json& set) {
  std::vector<ManifestShard> shards;
  for (const Json& one : set.at("shards")) {
    ManifestShard& shard =
        shards.emplace_back(ManifestShard{.file = one.at("file").get<std::string>()});
    each_count(shard, taking_from(one));
    shard.hash = hash_from(one.at("hash"));
  }
  return shards;
}

}  // namespace

ManifestShard sum_of(const std::vector<ManifestShard>& shards) {
  ManifestShard sum;
  for (const ManifestShard& shard : shards) {
    sum.tokens += shard.tokens;
    sum.documents += shard.documents;
    sum.bytes += shard.bytes;
  }
  return sum;
}

std::string to_json(const Manifest& manifest) {
  Json json;
  json["format"] = format_name;
  json["version"] = format_version;
  json["tokenizer"] = {{"hash", fmt::format("{:016x}", manifest.tokenizer)},
                       {"kind", manifest.kind},
                       {"vocabulary", manifest.vocabulary},
                       {"end_of_text", nullptr}};
  if (manifest.end_of_text)
    json["tokenizer"]["end_of_text"] = *manifest.end_of_text;
  json["validation_fraction"] = manifest.validation_fraction;
  each_note(manifest.notes, putting_into(json["notes"]));
  json["train"] = json_of(manifest.train);
  json["validation"] = json_of(manifest.validation);
  return json_text(json, 2);
}

Manifest manifest_from_json(std::string_view text, const std::string& path) {
  const auto refuse = [&](const std::string& what) -> Manifest {
    throw UserError(
        Place{path},
        fmt::format("is not a manifest of trireme tokenize: {}; tokenize again, or move it away",
                    what));
  };
  try {
    const Json json = Json::parse(text);
    if (!json.is_object() || json.value("format", "") != format_name)
      return refuse(fmt::format("it has no \"format\": \"{}\"", format_name));
    if (json.at("version").get<std::int64_t>() != format_version)
      return refuse(fmt::format("its version is {}, this program reads {}",
                                json.at("version").dump(), format_version));
    Manifest manifest;
    const Json& tokenizer = json.at("tokenizer");
    manifest.tokenizer = hash_from(tokenizer.at("hash"));
    manifest.kind = tokenizer.at("kind").get<std::string>();
    manifest.vocabulary = tokenizer.at("vocabulary").get<std::int64_t>();
    if (!tokenizer.at("end_of_text").is_null())
      manifest.end_of_text = tokenizer.at("end_of_text").get<std::int32_t>();
    manifest.validation_fraction = json.at("validation_fraction").get<double>();
    if (json.contains("notes"))
      each_note(manifest.notes, taking_from(json.at("notes")));
    manifest.train = shards_from(json.at("train"));
    manifest.validation = shards_from(json.at("validation"));
    return manifest;
  } catch (const nlohmann::json::exception& problem) {
    return refuse(problem.what());
  } catch (const UserError& problem) {
    if (!problem.findings().front().place.file.empty())
      throw;
    return refuse(problem.what());
  }
}

std::string manifest_of_shard(const std::string& path) {
  constexpr std::size_t digits = 6;
  const std::string_view end = ".bin";
  if (path.size() < end.size() + digits || !path.ends_with(end))
    return "";
  const std::size_t number = path.size() - end.size() - digits;
  if (path.find_first_not_of("0123456789", number) != path.size() - end.size())
    return "";
  for (const std::string_view set : {"_train_", "_val_"})
    if (number >= set.size() && path.compare(number - set.size(), set.size(), set) == 0)
      return path.substr(0, number - set.size()) + "_manifest.json";
  return "";
}

const Manifest* Manifests::of(const std::string& path) {
  const std::string manifest_path = manifest_of_shard(path);
  if (manifest_path.empty())
    return nullptr;
  auto known = read_.find(manifest_path);
  if (known == read_.end()) {
    std::error_code ignored;
    std::optional<Manifest> manifest;
    if (std::filesystem::exists(manifest_path, ignored))
      manifest = manifest_from_json(files::read_whole(manifest_path), manifest_path);
    known = read_.emplace(manifest_path, std::move(manifest)).first;
  }
  return known->second ? &*known->second : nullptr;
}

std::string Manifests::problem(const std::string& path,
                               std::int64_t tokens,
                               std::uint64_t hash,
                               std::uint64_t tokenizer) {
  const Manifest* const found = of(path);
  if (found == nullptr)
    return "";
  const Manifest& manifest = *found;
  const std::string manifest_path = manifest_of_shard(path);
  if (tokenizer != 0 && tokenizer != manifest.tokenizer)
    return fmt::format(
        "these are tokens of another tokenizer than data.tokenizer's: {} has hash "
        "{:016x}, and data.tokenizer has {:016x}",
        manifest_path, manifest.tokenizer, tokenizer);
  const std::string name = std::filesystem::path(path).filename().string();
  for (const auto* shards : {&manifest.train, &manifest.validation}) {
    const auto shard = std::ranges::find(*shards, name, &ManifestShard::file);
    if (shard == shards->end())
      continue;
    if (shard->tokens == tokens && shard->hash == hash)
      return "";
    return fmt::format(
        "it has {} tokens with hash {:016x}, and {} lists {} with {:016x}: it is "
        "damaged, or of another run of trireme tokenize",
        tokens, hash, manifest_path, shard->tokens, shard->hash);
  }
  return fmt::format("{} does not list it: it is of another run of trireme tokenize",
                     manifest_path);
}

}  // namespace trireme::tokens
