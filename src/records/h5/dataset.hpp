// SPDX-License-Identifier: Apache-2.0
// Attributes, and one-dimensional datasets of numbers, compounds or strings: extendible ones that
// grow by appending, and fixed contiguous ones that are written once.
//
// 1. Extendible datasets are chunked and unfiltered; the fill value is never written.
// 2. What is read or written has the dataset's own type or one that HDF5 converts to it; bf16 is
//    stored as a 2-byte float that h5py reads as float32, and is read back without conversion.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/dtype.hpp"

#include "h5/handle.hpp"

namespace trireme::h5 {

namespace detail {
/// The type of a number of `bytes` bytes; a real number of two bytes is bf16.
Type number_type(bool real, bool with_sign, std::size_t bytes);
Type text_type();
/// An attribute with its number of values; `texts`: whether they must be texts or numbers.
Attribute open_attribute(hid_t object, const std::string& name, bool texts, std::size_t& values);
[[noreturn]] void refuse_list(hid_t object, const std::string& name);
}  // namespace detail

/// An owned copy of the type that memory of T or of `dtype` has. That of a std::string is
/// variable-length UTF-8.
template <class T>
Type type_of() {
  if constexpr (std::is_same_v<T, std::string>)
    return detail::text_type();
  else
    return detail::number_type(std::is_floating_point_v<T> || std::is_same_v<T, Bf16>,
                               std::is_signed_v<T>, sizeof(T));
}
Type type_of(DType dtype);

/// Texts as HDF5 writes them.
std::vector<const char*> pointers_to(std::span<const std::string> texts);
/// What HDF5 read as texts, whose memory it gets back.
std::vector<std::string> take_texts(std::vector<char*> texts);

/// The type of a plain struct. Padding between members is not stored apart.
struct Member {
  const char* name;
  std::size_t offset;
  const Type& type;
};
Type compound_type(std::size_t size_bytes, std::initializer_list<Member> members);

class Dataset {
 public:
  /// Empty; `chunk` elements are allocated at a time.
  static Dataset create_extendible(hid_t parent,
                                   const std::string& name,
                                   const Type& type,
                                   std::int64_t chunk);
  /// Contiguous, with space reserved at once.
  static Dataset create_fixed(hid_t parent,
                              const std::string& name,
                              const Type& type,
                              std::int64_t elements);
  /// Throws StorageError when it is missing or not one-dimensional.
  static Dataset open(hid_t parent, const std::string& name);

  [[nodiscard]] hid_t id() const { return id_.get(); }
  [[nodiscard]] std::int64_t elements() const;
  /// The same, before memory is asked for all of them: throws DamagedError when the file holds less
  /// than that, so that a false length is not mistaken for a lack of memory. A virtual
  /// dataset's is believed.
  [[nodiscard]] std::int64_t stored_elements() const;
  /// Where the data of one made by create_fixed() is in its file, in bytes. They are there as in
  /// memory, one after another, so they can be written without HDF5 and its lock.
  [[nodiscard]] std::int64_t file_offset() const;
  /// The type on disk, and its size.
  [[nodiscard]] Type type() const;
  [[nodiscard]] std::size_t element_bytes() const;

  /// The hyperslab [begin, begin + count). `data` holds `count` elements of `type`.
  void read(std::int64_t begin, std::int64_t count, const Type& type, void* data) const;
  void write(std::int64_t begin, std::int64_t count, const Type& type, const void* data);
  /// Extendible ones only.
  void append(std::int64_t count, const Type& type, const void* data);
  /// Makes it shorter or longer; extendible ones only.
  void resize(std::int64_t elements);

  template <class T>
  void append(std::span<const T> values) {
    if constexpr (std::is_same_v<T, std::string>)
      append(std::ssize(values), type_of<T>(), pointers_to(values).data());
    else
      append(std::ssize(values), type_of<T>(), values.data());
  }
  template <class T>
  [[nodiscard]] std::vector<T> read_all() const {
    constexpr bool texts = std::is_same_v<T, std::string>;
    std::vector<std::conditional_t<texts, char*, T>> values(
        static_cast<std::size_t>(stored_elements()));
    read(0, std::ssize(values), type_of<T>(), values.data());
    if constexpr (texts)
      return take_texts(std::move(values));
    else
      return values;
  }

 private:
  explicit Dataset(DatasetId id) : id_(std::move(id)) {}
  void transfer(
      std::int64_t begin, std::int64_t count, const Type& type, const void* from, void* to) const;

  DatasetId id_;
};

// Typed attributes. Writing replaces an attribute of the same name, whatever its type was.

/// Of any type; `values`: -1 for a scalar.
void write_attribute(
    hid_t object, const std::string& name, const Type& type, std::int64_t values, const void* data);
void write_attribute(hid_t object, const std::string& name, const char* value);
/// T: a number, a std::string, or a std::vector of one of these.
template <class T>
void write_attribute(hid_t object, const std::string& name, const T& value) {
  if constexpr (std::is_same_v<T, std::string>)
    write_attribute(object, name, value.c_str());
  else if constexpr (std::is_arithmetic_v<T>)
    write_attribute(object, name, type_of<T>(), -1, &value);
  else if constexpr (std::is_same_v<T, std::vector<std::string>>)
    write_attribute(object, name, type_of<std::string>(), std::ssize(value),
                    pointers_to(value).data());
  else
    write_attribute(object, name, type_of<typename T::value_type>(), std::ssize(value),
                    value.data());
}

bool has_attribute(hid_t object, const std::string& name);
/// Names in alphabetical order.
std::vector<std::string> attribute_names(hid_t object);

/// Of the same types. Numbers are converted by HDF5. Throws StorageError when it is missing or of
/// another kind.
template <class T>
T read_attribute(hid_t object, const std::string& name) {
  if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
    auto values = read_attribute<std::vector<T>>(object, name);
    if (values.size() != 1)
      detail::refuse_list(object, name);
    return std::move(values.front());
  } else {
    using One = typename T::value_type;
    constexpr bool texts = std::is_same_v<One, std::string>;
    std::size_t count = 0;
    const Attribute attribute = detail::open_attribute(object, name, texts, count);
    std::vector<std::conditional_t<texts, char*, One>> values(count);
    if (count > 0)
      TRIREME_H5_OF(object, name, H5Aread(attribute.get(), type_of<One>().get(), values.data()));
    if constexpr (texts)
      return take_texts(std::move(values));
    else
      return values;
  }
}

/// Makes `scale` the dimension scale of all of `others`, which are as long: the coordinate of their
/// elements, for programs that know HDF5's dimension scales. Once per scale.
void make_scale(const Dataset& scale, const std::string& name, std::span<const Dataset> others);

/// One stretch of a virtual dataset: `count` elements from `begin` on are in another file.
struct VirtualPiece {
  std::int64_t begin = 0;
  std::int64_t count = 0;
  std::string file;     ///< relative to the directory of the file that holds the virtual dataset
  std::string dataset;  ///< read from its first element
};
/// A 1-D dataset that shows the pieces as one. Elements that no piece covers read as zero.
Dataset create_virtual(hid_t parent,
                       const std::string& name,
                       const Type& type,
                       std::int64_t elements,
                       std::span<const VirtualPiece> pieces);

}  // namespace trireme::h5
