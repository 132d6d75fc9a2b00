// SPDX-License-Identifier: Apache-2.0
// Shared by the fuzzers. An input passes if LLVMFuzzerTestOneInput returns: invalid input gives a
// UserError, which the fuzzer catches. Any other exception, a sanitizer's finding or a broken
// guarantee ends the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include <unistd.h>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace trireme::fuzz {

inline void promise(bool kept, const char* what) {
  if (kept)
    return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

/// In memory if possible, removed at the end.
struct Directory {
  Directory() { std::filesystem::create_directory(path); }
  ~Directory() { std::filesystem::remove_all(path); }
  const std::string path =
      (std::filesystem::exists("/dev/shm") ? std::string("/dev/shm")
                                           : std::filesystem::temp_directory_path().string()) +
      "/trireme-fuzz-" + std::to_string(::getpid());
};

inline void write(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}
inline std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Takes values from the front of an input; zeros after its end.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size)
      : rest_(reinterpret_cast<const char*>(data), size) {}

  template <class T>
  T take() {
    T value{};
    const std::string_view bytes = rest_.substr(0, sizeof value);
    std::memcpy(&value, bytes.data(), bytes.size());
    rest_.remove_prefix(bytes.size());
    return value;
  }
  /// A number in 0 … most.
  std::size_t count(std::size_t most) { return take<std::uint8_t>() % (most + 1); }
  [[nodiscard]] std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

}  // namespace trireme::fuzz
