// SPDX-License-Identifier: Apache-2.0
#include "h5/attribute.hpp"

#include <algorithm>

#include "base/error.hpp"

#include "h5/dataset.hpp"

namespace trireme::h5 {
namespace {

void write(
    hid_t object, const std::string& name, const Type& type, const Space& space, const void* data) {
  if (has_attribute(object, name))
    TRIREME_H5_OF(object, name, H5Adelete(object, name.c_str()));
  const Attribute attribute(TRIREME_H5_OF(
      object, name,
      H5Acreate2(object, name.c_str(), type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT)));
  if (TRIREME_H5(H5Sget_simple_extent_npoints(space.get())) > 0)
    TRIREME_H5_OF(object, name, H5Awrite(attribute.get(), type.get(), data));
}

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
                       strings ? "it is not a string" : "it is not a number", __FILE__, __LINE__);
  const Space space(TRIREME_H5(H5Aget_space(attribute.get())));
  elements = static_cast<std::size_t>(TRIREME_H5(H5Sget_simple_extent_npoints(space.get())));
  return attribute;
}

template <class T>
std::vector<T> read_numbers(hid_t object, const std::string& name) {
  std::size_t elements = 0;
  const Attribute attribute = open(object, name, false, elements);
  std::vector<T> values(elements);
  if (elements > 0)
    TRIREME_H5_OF(object, name, H5Aread(attribute.get(), type_of<T>().get(), values.data()));
  return values;
}

std::vector<std::string> read_texts(hid_t object, const std::string& name) {
  std::size_t elements = 0;
  const Attribute attribute = open(object, name, true, elements);
  std::vector<char*> texts(elements, nullptr);
  std::vector<std::string> values;
  if (elements == 0)
    return values;
  const Type type = string_type();
  TRIREME_H5_OF(object, name, H5Aread(attribute.get(), type.get(), texts.data()));
  for (const char* text : texts) values.emplace_back(text == nullptr ? "" : text);
  const Space space = list(elements);
  TRIREME_H5(H5Dvlen_reclaim(type.get(), space.get(), H5P_DEFAULT, texts.data()));
  return values;
}

template <class T>
T only(std::vector<T> values, hid_t object, const std::string& name) {
  if (values.size() != 1)
    throw DamagedError("HDF5", detail::about("reading attribute", object, name),
                       "it is not a single value", __FILE__, __LINE__);
  return std::move(values.front());
}

herr_t collect_name(hid_t, const char* name, const H5A_info_t*, void* out) {
  static_cast<std::vector<std::string>*>(out)->emplace_back(name);
  return 0;
}

}  // namespace

void write_attribute(hid_t object, const std::string& name, const std::string& value) {
  const char* text = value.c_str();
  write(object, name, string_type(), scalar(), &text);
}
void write_attribute(hid_t object, const std::string& name, const char* value) {
  write_attribute(object, name, std::string(value));
}
void write_attribute(hid_t object, const std::string& name, std::int64_t value) {
  write(object, name, type_of<std::int64_t>(), scalar(), &value);
}
void write_attribute(hid_t object, const std::string& name, std::uint64_t value) {
  write(object, name, type_of<std::uint64_t>(), scalar(), &value);
}
void write_attribute(hid_t object, const std::string& name, double value) {
  write(object, name, type_of<double>(), scalar(), &value);
}
void write_attribute(hid_t object,
                     const std::string& name,
                     const std::vector<std::string>& values) {
  std::vector<const char*> texts;
  texts.reserve(values.size());
  for (const std::string& value : values) texts.push_back(value.c_str());
  write(object, name, string_type(), list(values.size()), texts.data());
}
void write_attribute(hid_t object,
                     const std::string& name,
                     const std::vector<std::int64_t>& values) {
  write(object, name, type_of<std::int64_t>(), list(values.size()), values.data());
}
void write_attribute(hid_t object, const std::string& name, const std::vector<double>& values) {
  write(object, name, type_of<double>(), list(values.size()), values.data());
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

template <>
std::string read_attribute<std::string>(hid_t object, const std::string& name) {
  return only(read_texts(object, name), object, name);
}
template <>
std::int64_t read_attribute<std::int64_t>(hid_t object, const std::string& name) {
  return only(read_numbers<std::int64_t>(object, name), object, name);
}
template <>
std::uint64_t read_attribute<std::uint64_t>(hid_t object, const std::string& name) {
  return only(read_numbers<std::uint64_t>(object, name), object, name);
}
template <>
double read_attribute<double>(hid_t object, const std::string& name) {
  return only(read_numbers<double>(object, name), object, name);
}
template <>
std::vector<std::string> read_attribute<std::vector<std::string>>(hid_t object,
                                                                  const std::string& name) {
  return read_texts(object, name);
}
template <>
std::vector<std::int64_t> read_attribute<std::vector<std::int64_t>>(hid_t object,
                                                                    const std::string& name) {
  return read_numbers<std::int64_t>(object, name);
}
template <>
std::vector<double> read_attribute<std::vector<double>>(hid_t object, const std::string& name) {
  return read_numbers<double>(object, name);
}

}  // namespace trireme::h5
