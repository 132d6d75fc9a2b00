// SPDX-License-Identifier: Apache-2.0
#include "tokens/text_input.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <zlib.h>
#include <zstd.h>

#include "base/error.hpp"
#include "files/input_file.hpp"

namespace trireme::tokens {
namespace {

constexpr std::size_t packed_bytes = std::size_t{256} << 10U;

class Plain : public TextInput::Source {
 public:
  Plain(const std::string& path, std::int64_t begin, std::int64_t end)
      : file_(path), at_(begin), end_(end < 0 ? file_.size() : end) {}

  std::size_t read_some(std::span<std::byte> bytes) override {
    const auto left = static_cast<std::size_t>(std::max<std::int64_t>(end_ - at_, 0));
    const std::size_t count = file_.read_some(at_, bytes.first(std::min(bytes.size(), left)));
    at_ += static_cast<std::int64_t>(count);
    return count;
  }

 private:
  files::InputFile file_;
  std::int64_t at_, end_;
};

/// The compressed bytes of a file, a buffer at a time.
class Packed {
 public:
  explicit Packed(const std::string& path) : file_(path), buffer_(packed_bytes) {}

  /// The next bytes; empty at the end of the file.
  std::span<const std::byte> next() {
    const std::size_t count = file_.read_some(at_, buffer_);
    at_ += static_cast<std::int64_t>(count);
    return std::span<const std::byte>(buffer_).first(count);
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw UserError(Place{file_.path()},
                    fmt::format("{}, before byte {} of the file; create it again", what, at_));
  }

 private:
  files::InputFile file_;
  std::int64_t at_ = 0;
  std::vector<std::byte> buffer_;
};

class Gzip : public TextInput::Source {
 public:
  explicit Gzip(const std::string& path) : packed_(path) {
    constexpr int largest_window = 15, gzip_only = 16;
    if (inflateInit2(&stream_, largest_window + gzip_only) != Z_OK)
      throw std::bad_alloc();
  }
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;
  ~Gzip() override { inflateEnd(&stream_); }

  std::size_t read_some(std::span<std::byte> bytes) override {
    stream_.next_out = reinterpret_cast<Bytef*>(bytes.data());
    stream_.avail_out = static_cast<uInt>(std::min<std::size_t>(bytes.size(), 1U << 30U));
    const uInt room = stream_.avail_out;
    while (stream_.avail_out == room && !ended_) {
      if (stream_.avail_in == 0 && !refill())
        break;
      if (std::exchange(between_members_, false))
        inflateReset(&stream_);
      const int status = inflate(&stream_, Z_NO_FLUSH);
      if (status == Z_STREAM_END)
        between_members_ = true;
      else if (status != Z_OK && status != Z_BUF_ERROR)
        packed_.fail(fmt::format("the gzip data are damaged ({})",
                                 stream_.msg != nullptr ? stream_.msg : "no reason given"));
    }
    return room - stream_.avail_out;
  }

 private:
  bool refill() {
    const auto bytes = packed_.next();
    if (bytes.empty()) {
      ended_ = true;
      if (!between_members_)
        packed_.fail("the gzip data are cut short");
      return false;
    }
    // zlib does not write there, although its type allows it.
    stream_.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(bytes.data()));
    stream_.avail_in = static_cast<uInt>(bytes.size());
    return true;
  }

  Packed packed_;
  z_stream stream_{};
  bool between_members_ = false, ended_ = false;
};

class Zstd : public TextInput::Source {
 public:
  explicit Zstd(const std::string& path) : packed_(path), stream_(ZSTD_createDStream()) {
    if (stream_ == nullptr)
      throw std::bad_alloc();
  }
  Zstd(const Zstd&) = delete;
  Zstd& operator=(const Zstd&) = delete;
  ~Zstd() override { ZSTD_freeDStream(stream_); }

  std::size_t read_some(std::span<std::byte> bytes) override {
    ZSTD_outBuffer out{bytes.data(), bytes.size(), 0};
    while (out.pos == 0 && !bytes.empty()) {
      // A full buffer may have left text of the frame inside, which comes without more input.
      if (in_.pos == in_.size && (!inside_full_ || status_ == 0)) {
        const auto next = packed_.next();
        if (next.empty()) {
          if (status_ != 0 || !began_)
            packed_.fail("the zstd data are cut short");
          return 0;
        }
        in_ = {next.data(), next.size(), 0};
        began_ = true;
      }
      status_ = ZSTD_decompressStream(stream_, &out, &in_);
      if (ZSTD_isError(status_) != 0)
        packed_.fail(fmt::format("the zstd data are damaged ({})", ZSTD_getErrorName(status_)));
      inside_full_ = out.pos == out.size;
    }
    return out.pos;
  }

 private:
  Packed packed_;
  ZSTD_DStream* stream_;
  ZSTD_inBuffer in_{nullptr, 0, 0};
  std::size_t status_ = 0;  // 0: a frame is complete
  bool began_ = false, inside_full_ = false;
};

}  // namespace

bool is_compressed(const std::string& path) {
  return path.ends_with(".gz") || path.ends_with(".zst");
}

TextInput::TextInput(const std::string& path, std::int64_t begin, std::int64_t end) {
  TRIREME_EXPECT(!is_compressed(path) || (begin == 0 && end < 0), "bytes [{}, {}) of {}", begin,
                 end, path);
  if (path.ends_with(".gz"))
    source_ = std::make_unique<Gzip>(path);
  else if (path.ends_with(".zst"))
    source_ = std::make_unique<Zstd>(path);
  else
    source_ = std::make_unique<Plain>(path, begin, end);
}

TextInput::~TextInput() = default;
TextInput::TextInput(TextInput&&) noexcept = default;
TextInput& TextInput::operator=(TextInput&&) noexcept = default;

std::size_t TextInput::read_some(std::span<std::byte> bytes) {
  return source_->read_some(bytes);
}

}  // namespace trireme::tokens
