// SPDX-License-Identifier: Apache-2.0
#include "batches/provenance.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "tokens/sources.hpp"
#include "tokens/text_input.hpp"
#include "tokens/token_files.hpp"
#include "tokens/token_index.hpp"

namespace trireme::batches {
namespace {

namespace fs = std::filesystem;

bool same_file(const std::string& a, const std::string& b) {
  std::error_code ignored;
  return a == b || fs::equivalent(a, b, ignored);
}

/// Where the size of the text is known: plain text.
bool ends_before(const std::string& path, std::int64_t offset) {
  std::error_code ignored;
  return tokens::packing_of(path) == tokens::Packing::none &&
         static_cast<std::int64_t>(fs::file_size(path, ignored)) <= offset;
}

/// The tokens of a file at which documents begin; empty: they are not known.
std::vector<std::int64_t> starts_in(const tokens::TokenFile& file) {
  std::vector<std::int64_t> starts;
  if (!file.index.empty())
    starts = tokens::read_documents(file.index);
  tokens::ExaminedFile stated{.file = file};
  if (const auto index = fs::path(file.path).replace_extension(".idx");
      starts.empty() && file.path.ends_with(".bin") && fs::exists(index) &&
      tokens::examine_megatron(index.string(), stated).empty())
    starts = std::move(stated.documents);
  return starts;
}

}  // namespace

Provenance::Provenance(const Stream& stream) : stream_(stream) {
  std::int64_t token = 0;
  for (const tokens::TokenFile& file : stream.files) {
    begins_.push_back(token +
                      (std::ranges::lower_bound(stream.marks, token) - stream.marks.begin()));
    token += file.tokens;
  }
  if (stream.files.empty())  // generated tokens are one document
    begins_.push_back(0);
  begins_.push_back(stream.tokens->size());
  if (stream.text)
    units_ = corpus::units_of(tokens::find_text(stream.text->text, stream.text->key), *stream.text);
}

const std::vector<Document>& Provenance::documents(std::size_t shard) {
  const auto [entry, is_new] = known_.try_emplace(shard);
  auto& found = entry->second;
  const std::int64_t begin = begins_[shard];
  if (is_new && stream_.files.empty()) {
    found.push_back({"generated tokens", 0, 0});
  } else if (is_new && stream_.text) {
    const auto [unit, validates] = corpus::unit_of_shard(stream_.files[shard].path);
    for (const auto& one : corpus::documents_of(units_.at(unit), *stream_.text))
      if (one.validates == validates)
        found.push_back({one.path, one.at, begin + one.token});
  } else if (is_new) {
    const tokens::TokenFile& file = stream_.files[shard];
    for (const std::int64_t at : starts_in(file))
      found.push_back(
          {file.path, at, begin + at + (stream_.marks.empty() ? 0 : std::ssize(found))});
    if (found.empty() || found.front().begin > begin)
      found.insert(found.begin(), {file.path, 0, begin});
  }
  for (std::size_t i = 0; i < found.size() && is_new; ++i)
    found[i].end = i + 1 < found.size() ? found[i + 1].begin : begins_[shard + 1];
  return found;
}

Document Provenance::document(std::int64_t token) {
  const auto shard = std::ranges::upper_bound(begins_, token) - begins_.begin() - 1;
  return *(std::ranges::upper_bound(documents(static_cast<std::size_t>(shard)), token, {},
                                    &Document::begin) -
           1);
}

std::optional<Document> Provenance::find(const std::string& file, std::int64_t offset) {
  std::optional<Document> found;
  for (std::size_t shard = 0; shard < stream_.files.size(); ++shard) {
    const tokens::TokenFile& one = stream_.files[shard];
    const bool has =
        stream_.text ? std::ranges::any_of(units_.at(corpus::unit_of_shard(one.path).first).ranges,
                                           [&](const corpus::Range& range) {
                                             return range.begin <= offset &&
                                                    (range.end < 0 || offset < range.end) &&
                                                    same_file(range.path, file) &&
                                                    !ends_before(range.path, offset);
                                           })
                     : offset < one.tokens && same_file(one.path, file);
    if (!has)
      continue;
    for (const Document& document : documents(shard))
      if (document.offset <= offset && same_file(document.file, file) &&
          (!found || document.offset > found->offset))
        found = document;
  }
  return found;
}

}  // namespace trireme::batches
