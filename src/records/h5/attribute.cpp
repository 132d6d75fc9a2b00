// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <type_traits>

#include "base/error.hpp"

#include "h5/dataset.hpp"

namespace trireme::h5 {
namespace {

Space scalar() {
  return Space(TRIREME_H5(H5Screate(H5S_SCALAR)));
}

Space list(std::size_t elements) {
  const hsize_t dims[] = {elements};
  return Space(TRIREME_H5(H5Screate_simple(1, dims, nullptr)));
}

/// The attribute, opened, with its element count; `strings`: what the caller can take.
Attribute open(hid_t object, const std::string& name, bool strings, std::size_t& elements) {
  Attribute attribute(TRIREME_H5_OF(object, name, H5Aopen(object, name.c_str(), H5P_DEFAULT)));
  const Type type(TRIREME_H5(H5Aget_type(attribute.get())));
  const bool is_string = TRIREME_H5(H5Tget_class(type.get())) == H5T_STRING;
  if (is_string != strings || (strings && TRIREME_H5(H5Tis_variable_str(type.get())) == 0))
    throw DamagedError("HDF5", detail::about("reading attribute", object, name),
                       strings ? "it is not a string" : "it is not a number");
  const Space space(TRIREME_H5(H5Aget_space(attribute.get())));
  elements = static_cast<std::size_t>(TRIREME_H5(H5Sget_simple_extent_npoints(space.get())));
  return attribute;
}

template <class T>
std::vector<T> read_values(hid_t object, const std::string& name) {
  constexpr bool texts = std::is_same_v<T, std::string>;
  std::size_t elements = 0;
  const Attribute attribute = open(object, name, texts, elements);
  std::vector<std::conditional_t<texts, char*, T>> values(elements);
  if (elements > 0)
    TRIREME_H5_OF(object, name, H5Aread(attribute.get(), type_of<T>().get(), values.data()));
  if constexpr (texts)
    return take_texts(std::move(values));
  else
    return values;
}

template <class T>
T only(std::vector<T> values, hid_t object, const std::string& name) {
  if (values.size() != 1)
    throw DamagedError("HDF5", detail::about("reading attribute", object, name),
                       "it is not a single value");
  return std::move(values.front());
}

herr_t collect_name(hid_t, const char* name, const H5A_info_t*, void* out) {
  static_cast<std::vector<std::string>*>(out)->emplace_back(name);
  return 0;
}

}  // namespace

void write_attribute(
    hid_t object, const std::string& name, const Type& type, const Space& space, const void* data) {
  if (has_attribute(object, name))
    TRIREME_H5_OF(object, name, H5Adelete(object, name.c_str()));
  const Attribute attribute(TRIREME_H5_OF(
      object, name,
      H5Acreate2(object, name.c_str(), type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT)));
  if (TRIREME_H5(H5Sget_simple_extent_npoints(space.get())) > 0)
    TRIREME_H5_OF(object, name, H5Awrite(attribute.get(), type.get(), data));
}

template <class T>
void write_attribute(hid_t object, const std::string& name, const T& value) {
  if constexpr (std::is_same_v<T, std::string>)
    write_attribute(object, name, value.c_str());
  else if constexpr (std::is_arithmetic_v<T>)
    write_attribute(object, name, type_of<T>(), scalar(), &value);
  else if constexpr (std::is_same_v<T, std::vector<std::string>>)
    write_attribute(object, name, type_of<std::string>(), list(value.size()),
                    pointers_to(value).data());
  else
    write_attribute(object, name, type_of<typename T::value_type>(), list(value.size()),
                    value.data());
}

void write_attribute(hid_t object, const std::string& name, const char* value) {
  write_attribute(object, name, type_of<std::string>(), scalar(), &value);
}

bool has_attribute(hid_t object, const std::string& name) {
  return TRIREME_H5_OF(object, name, H5Aexists(object, name.c_str())) > 0;
}

std::vector<std::string> attribute_names(hid_t object) {
  std::vector<std::string> names;
  hsize_t position = 0;
  TRIREME_H5_OF(
      object, "",
      H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_NATIVE, &position, collect_name, &names));
  std::ranges::sort(names);
  return names;
}

template <class T>
T read_attribute(hid_t object, const std::string& name) {
  if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>)
    return only(read_values<T>(object, name), object, name);
  else
    return read_values<typename T::value_type>(object, name);
}

template void write_attribute(hid_t, const std::string&, const std::string&);
template void write_attribute(hid_t, const std::string&, const std::int64_t&);
template void write_attribute(hid_t, const std::string&, const std::uint64_t&);
template void write_attribute(hid_t, const std::string&, const double&);
template void write_attribute(hid_t, const std::string&, const std::vector<std::string>&);
template void write_attribute(hid_t, const std::string&, const std::vector<std::int64_t>&);
template std::string read_attribute(hid_t, const std::string&);
template std::int64_t read_attribute(hid_t, const std::string&);
template std::uint64_t read_attribute(hid_t, const std::string&);
template double read_attribute(hid_t, const std::string&);
template std::vector<std::string> read_attribute(hid_t, const std::string&);
template std::vector<std::int64_t> read_attribute(hid_t, const std::string&);

}  // namespace trireme::h5
