// SPDX-License-Identifier: Apache-2.0
#include "tokens/text_input.hpp"

#include <algorithm>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <zlib.h>
#include <zstd.h>
#ifdef TRIREME_BZip2
#include <bzlib.h>
#endif
#ifdef TRIREME_LibLZMA
#include <lzma.h>
#endif

#include "base/error.hpp"
#include "files/descriptor.hpp"

namespace trireme::tokens {
namespace {

constexpr std::size_t packed_bytes = std::size_t{256} << 10U;

class Plain : public TextInput {
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

using In = std::span<const std::byte>;
using Out = std::span<std::byte>;

/// Takes from the front of `in` and fills the front of `out`; both become what is left.
template <class Stream>
void give(Stream& stream, In in, Out out) {
  // No library writes to its input, although the types of some allow it.
  stream.next_in = reinterpret_cast<decltype(stream.next_in)>(const_cast<std::byte*>(in.data()));
  stream.avail_in = static_cast<decltype(stream.avail_in)>(in.size());
  stream.next_out = reinterpret_cast<decltype(stream.next_out)>(out.data());
  stream.avail_out = static_cast<decltype(stream.avail_out)>(out.size());
}
template <class Stream>
void take(const Stream& stream, In& in, Out& out) {
  in = in.last(static_cast<std::size_t>(stream.avail_in));
  out = out.last(static_cast<std::size_t>(stream.avail_out));
}

/// What a compressed member is read with: start() before each, step() until it returns true.
/// `problem` is set where the data are damaged.
struct GzipCodec {
  static constexpr const char* name = "gzip";
  GzipCodec() {
    constexpr int largest_window = 15, gzip_only = 16;
    if (inflateInit2(&stream, largest_window + gzip_only) != Z_OK)
      throw std::bad_alloc();
  }
  ~GzipCodec() { inflateEnd(&stream); }
  void start() { inflateReset(&stream); }
  bool step(In& in, Out& out, bool /*last*/, std::string& problem) {
    give(stream, in, out);
    const int status = inflate(&stream, Z_NO_FLUSH);
    take(stream, in, out);
    if (status != Z_OK && status != Z_BUF_ERROR && status != Z_STREAM_END)
      problem = stream.msg != nullptr ? stream.msg : "no reason given";
    return status == Z_STREAM_END;
  }
  z_stream stream{};
};

struct ZstdCodec {
  static constexpr const char* name = "zstd";
  ZstdCodec() : stream(ZSTD_createDStream()) {
    if (stream == nullptr)
      throw std::bad_alloc();
    // Without this, what `zstd --long` made is refused.
    ZSTD_DCtx_setParameter(stream, ZSTD_d_windowLogMax,
                           ZSTD_dParam_getBounds(ZSTD_d_windowLogMax).upperBound);
  }
  ~ZstdCodec() { ZSTD_freeDStream(stream); }
  void start() {}
  bool step(In& in, Out& out, bool /*last*/, std::string& problem) {
    ZSTD_inBuffer from{in.data(), in.size(), 0};
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    const std::size_t status = ZSTD_decompressStream(stream, &to, &from);
    in = in.subspan(from.pos);
    out = out.subspan(to.pos);
    if (ZSTD_isError(status) != 0)
      problem = ZSTD_getErrorName(status);
    return status == 0;
  }
  ZSTD_DStream* stream;
};

#ifdef TRIREME_BZip2
struct Bzip2Codec {
  static constexpr const char* name = "bzip2";
  Bzip2Codec() = default;
  ~Bzip2Codec() { BZ2_bzDecompressEnd(&stream); }
  void start() {
    BZ2_bzDecompressEnd(&stream);
    stream = {};
    if (BZ2_bzDecompressInit(&stream, 0, 0) != BZ_OK)
      throw std::bad_alloc();
  }
  bool step(In& in, Out& out, bool /*last*/, std::string& problem) {
    give(stream, in, out);
    const int status = BZ2_bzDecompress(&stream);
    take(stream, in, out);
    if (status != BZ_OK && status != BZ_STREAM_END)
      problem = fmt::format("error {}", status);
    return status == BZ_STREAM_END;
  }
  bz_stream stream{};
};
#endif

#ifdef TRIREME_LibLZMA
struct XzCodec {
  static constexpr const char* name = "xz";
  ~XzCodec() { lzma_end(&stream); }
  void start() {
    if (lzma_stream_decoder(&stream, UINT64_MAX, LZMA_CONCATENATED) != LZMA_OK)
      throw std::bad_alloc();
  }
  /// With LZMA_CONCATENATED all members and the padding between them are one.
  bool step(In& in, Out& out, bool last, std::string& problem) {
    give(stream, in, out);
    const lzma_ret status = lzma_code(&stream, last ? LZMA_FINISH : LZMA_RUN);
    take(stream, in, out);
    if (status == LZMA_MEM_ERROR)
      throw std::bad_alloc();
    if (status != LZMA_OK && status != LZMA_BUF_ERROR && status != LZMA_STREAM_END)
      problem = fmt::format("error {}", static_cast<int>(status));
    return status == LZMA_STREAM_END;
  }
  lzma_stream stream = LZMA_STREAM_INIT;
};
#endif

template <class Codec>
class Unpacked : public TextInput {
 public:
  explicit Unpacked(const std::string& path) : file_(path), buffer_(packed_bytes) {}

  std::size_t read_some(std::span<std::byte> bytes) override {
    Out out = bytes.first(std::min<std::size_t>(bytes.size(), 1U << 30U));
    const std::size_t room = out.size();
    while (out.size() == room && room > 0) {
      if (in_.empty() && !last_) {
        const std::size_t count = file_.read_some(at_, buffer_);
        at_ += static_cast<std::int64_t>(count);
        in_ = std::span(buffer_).first(count);
        last_ = count == 0;
      }
      // Tapes and archives pad with zeros, which gzip ignores. The first byte of the file is none.
      if (std::is_same_v<Codec, GzipCodec> && between_members_)
        while (!in_.empty() && in_.front() == std::byte{0}) in_ = in_.subspan(1);
      if (between_members_ && in_.empty()) {
        if (last_)
          break;
        continue;
      }
      if (std::exchange(between_members_, false))
        codec_.start();
      std::string problem;
      between_members_ = codec_.step(in_, out, last_, problem);
      if (!problem.empty())
        fail(fmt::format("the {} data are damaged ({})", Codec::name, problem));
      if (last_ && !between_members_ && out.size() == room)
        fail(fmt::format("the {} data are cut short", Codec::name));
    }
    return room - out.size();
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw UserError(Place{file_.path()},
                    fmt::format("{}, before byte {} of the file; create it again", what, at_));
  }

  files::InputFile file_;
  std::int64_t at_ = 0;
  std::vector<std::byte> buffer_;
  In in_;
  Codec codec_;
  bool between_members_ = true, last_ = false;
};

std::unique_ptr<TextInput> unpacked(const std::string& path, Packing packing) {
  switch (packing) {
    case Packing::gzip:
      return std::make_unique<Unpacked<GzipCodec>>(path);
    case Packing::zstd:
      return std::make_unique<Unpacked<ZstdCodec>>(path);
#ifdef TRIREME_BZip2
    case Packing::bzip2:
      return std::make_unique<Unpacked<Bzip2Codec>>(path);
#endif
#ifdef TRIREME_LibLZMA
    case Packing::xz:
      return std::make_unique<Unpacked<XzCodec>>(path);
#endif
    default:
      throw UserError(Place{path},
                      fmt::format("is {} data, which this build of trireme cannot decompress. "
                                  "Decompress the file, or build trireme with {}",
                                  packing == Packing::bzip2 ? "bzip2" : "xz",
                                  packing == Packing::bzip2 ? "libbz2" : "liblzma"));
  }
}

}  // namespace

Packing packing_of(const std::string& path) {
  const FileKind* const kind = kind_of(Plain(path, 0, kind_front).read_front(kind_front));
  return kind == nullptr ? Packing::none : kind->packing;
}

std::unique_ptr<TextInput> open_text(const std::string& path,
                                     std::int64_t begin,
                                     std::int64_t end) {
  const Packing packing = begin == 0 && end < 0 ? packing_of(path) : Packing::none;
  if (packing == Packing::none)
    return std::make_unique<Plain>(path, begin, end);
  return unpacked(path, packing);
}

std::string TextInput::read_front(std::size_t size) {
  std::string front(size, '\0');
  std::size_t got = 0;
  while (got < size)
    if (const auto count = read_some(std::as_writable_bytes(std::span(front)).subspan(got)))
      got += count;
    else
      break;
  front.resize(got);
  return front;
}

}  // namespace trireme::tokens
