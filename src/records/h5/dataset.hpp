// SPDX-License-Identifier: Apache-2.0
// Attributes, and one-dimensional datasets of numbers, compounds or strings: extendible ones that
// grow by appending, and fixed contiguous ones that are written once.
//
// 1. Extendible datasets are chunked and unfiltered; the fill value is never written.
// 2. HDF5 converts between the type in memory and the dataset's type. bf16 is stored as a 2-byte
//    float, which h5py reads as float32, and is read back without conversion.
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
/// The type of a number with `bytes` bytes. A 2-byte floating-point number is bf16.
Type number_type(bool real, bool with_sign, std::size_t bytes);
Type text_type();
/// Opens an attribute and counts its `values`. `texts`: whether they must be texts or numbers.
Attribute open_attribute(hid_t object, const std::string& name, bool texts, std::size_t& values);
[[noreturn]] void refuse_list(hid_t object, const std::string& name);
}  // namespace detail

/// The HDF5 type for T or `dtype` in memory; for std::string it is variable-length UTF-8.
template <class T>
Type type_of() {
  if constexpr (std::is_same_v<T, std::string>)
    return detail::text_type();
  else
    return detail::number_type(std::is_floating_point_v<T> || std::is_same_v<T, Bf16>,
                               std::is_signed_v<T>, sizeof(T));
}
Type type_of(DType dtype);

/// Pointers to the texts, as HDF5 writes them.
std::vector<const char*> pointers_to(std::span<const std::string> texts);
/// Copies texts that HDF5 allocated, and frees HDF5's memory.
std::vector<std::string> take_texts(std::vector<char*> texts);

/// A member of a plain struct, whose type contains no padding.
struct Member {
  const char* name;
  std::size_t offset;
  const Type& type;
};
Type compound_type(std::size_t size_bytes, std::initializer_list<Member> members);

class Dataset {
 public:
  /// Creates an empty dataset that grows in chunks of `chunk` elements.
  static Dataset create_extendible(hid_t parent,
                                   const std::string& name,
                                   const Type& type,
                                   std::int64_t chunk);
  /// Creates a contiguous dataset. Its space is allocated at once.
  static Dataset create_fixed(hid_t parent,
                              const std::string& name,
                              const Type& type,
                              std::int64_t elements);
  /// Throws StorageError if the dataset is missing, or DamagedError if it is not one-dimensional.
  static Dataset open(hid_t parent, const std::string& name);

  [[nodiscard]] hid_t id() const { return id_.get(); }
  [[nodiscard]] std::int64_t elements() const;
  /// The number of elements, checked before memory is allocated for them. Throws DamagedError if
  /// the file contains less data, so that a wrong length is not mistaken for lack of memory. The
  /// length of a virtual dataset is not checked.
  [[nodiscard]] std::int64_t stored_elements() const;
  /// Position in the file, in bytes, of the data of a dataset made by create_fixed(). The elements
  /// are stored contiguously as in memory, so they can be written without HDF5 and its lock.
  [[nodiscard]] std::int64_t file_offset() const;
  /// The type in the file.
  [[nodiscard]] Type type() const;
  [[nodiscard]] std::size_t element_bytes() const;

  /// Reads elements [begin, begin + count) into `data`, which has space for `count` of `type`.
  void read(std::int64_t begin, std::int64_t count, const Type& type, void* data) const;
  void write(std::int64_t begin, std::int64_t count, const Type& type, const void* data);
  /// Appends elements. Only for extendible datasets.
  void append(std::int64_t count, const Type& type, const void* data);
  /// Changes the number of elements. Only for extendible datasets.
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

// Typed attributes. Writing replaces an existing attribute of the same name and any type.

/// Writes an attribute of any type. `values`: -1 for a scalar.
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

/// Reads an attribute of one of these types. HDF5 converts numbers. Throws StorageError if it is
/// missing or has another kind of type.
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

/// Makes `scale` the dimension scale (coordinate) of all datasets in `others`, which have the same
/// length, for programs that support HDF5's dimension scales. Call it once per scale.
void make_scale(const Dataset& scale, const std::string& name, std::span<const Dataset> others);

/// A part of a virtual dataset: elements [begin, begin + count) are stored in another file.
struct VirtualPiece {
  std::int64_t begin = 0;
  std::int64_t count = 0;
  std::string file;     ///< relative to the directory of the file that holds the virtual dataset
  std::string dataset;  ///< read from its first element
};
/// Creates a 1-D dataset that presents the pieces as one. Elements without a piece read as zero.
Dataset create_virtual(hid_t parent,
                       const std::string& name,
                       const Type& type,
                       std::int64_t elements,
                       std::span<const VirtualPiece> pieces);

}  // namespace trireme::h5
