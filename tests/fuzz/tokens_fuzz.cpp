// SPDX-License-Identifier: Apache-2.0
// A file of tokens: the cache of text, or a shard of llm.c. The first byte says which, and whether
// a cache's checksum is made to fit, so that what lies behind it is reached.
#include <cstddef>
#include <span>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include "base/error.hpp"

#include "data/hash.hpp"
#include "data/llmc_shards.hpp"
#include "data/token_cache.hpp"

#include "fuzz.hpp"

namespace {

using namespace trireme;

/// Every token, in pieces, below the bound that the stream promises.
void read_all(const data::TokenStream& stream, std::int64_t bound) {
  std::vector<std::int32_t> tokens(100);
  for (std::int64_t at = 0; at < stream.size(); at += 100) {
    const auto count = static_cast<std::size_t>(std::min<std::int64_t>(100, stream.size() - at));
    stream.read(at, std::span(tokens).first(count));
    for (std::size_t i = 0; i < count; ++i)
      fuzz::promise(tokens[i] >= 0 && tokens[i] < bound, "tokens are below the vocabulary");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const auto kind = input.take<std::uint8_t>();
  std::string bytes(input.rest());
  if (kind % 4 == 1 && bytes.size() >= sizeof(data::CacheHeader)) {
    constexpr std::size_t at = offsetof(data::CacheHeader, checksum);
    const std::uint64_t sum = data::Hash().add(std::as_bytes(std::span(bytes)).first(at)).value();
    std::memcpy(bytes.data() + at, &sum, sizeof sum);
  }
  static const int file = ::memfd_create("tokens", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  fuzz::promise(::ftruncate(file, 0) == 0 &&
                    ::pwrite(file, bytes.data(), bytes.size(), 0) == std::ssize(bytes),
                "memory for a file");
  try {
    if (kind % 4 < 2) {
      data::CacheHeader header;
      static_cast<void>(data::cache_problem(path, header));
      const auto stream = data::open_cache(path);
      read_all(*stream, stream->vocabulary());
    } else {
      const std::int64_t vocabulary = kind % 4 == 2 ? 50257 : std::int64_t{1} << 31;
      const auto stream =
          data::open_shards({path}, vocabulary, data::check_shards({path}, vocabulary));
      read_all(*stream, vocabulary);
    }
  } catch (const UserError&) {
  } catch (const StorageError&) {  // other bytes than their hashes say
  }
  return 0;
}
