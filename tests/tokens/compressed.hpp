// SPDX-License-Identifier: Apache-2.0
// A text compressed with gzip, zstd, bzip2 and xz.
#pragma once

#include <cstdint>
#include <string>

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>
#ifdef TRIREME_BZip2
#include <bzlib.h>
#endif
#ifdef TRIREME_LibLZMA
#include <lzma.h>
#endif

namespace trireme::tokens {

inline std::string gzipped(const std::string& text) {
  std::string packed(text.size() + 1000, '\0');
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

inline std::string zstd(const std::string& text) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);  // as the program zstd does
  packed.resize(ZSTD_compress2(context, packed.data(), packed.size(), text.data(), text.size()));
  ZSTD_freeCCtx(context);
  return packed;
}

// Without their libraries, bzip2() and xz() use gzip: readers detect the format by content.
#ifdef TRIREME_BZip2
inline std::string bzip2(std::string text) {
  std::string packed(text.size() + 1000, '\0');
  auto size = static_cast<unsigned>(packed.size());
  EXPECT_EQ(BZ2_bzBuffToBuffCompress(packed.data(), &size, text.data(),
                                     static_cast<unsigned>(text.size()), 9, 0, 0),
            BZ_OK);
  packed.resize(size);
  return packed;
}
#else
inline std::string bzip2(const std::string& text) {
  return gzipped(text);
}
#endif

#ifdef TRIREME_LibLZMA
inline std::string xz(const std::string& text) {
  std::string packed(text.size() + 1000, '\0');
  std::size_t size = 0;
  EXPECT_EQ(lzma_easy_buffer_encode(
                1, LZMA_CHECK_CRC64, nullptr, reinterpret_cast<const std::uint8_t*>(text.data()),
                text.size(), reinterpret_cast<std::uint8_t*>(packed.data()), &size, packed.size()),
            LZMA_OK);
  packed.resize(size);
  return packed;
}
#else
inline std::string xz(const std::string& text) {
  return gzipped(text);
}
#endif

}  // namespace trireme::tokens
