// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "h5/dataset.hpp"

namespace trireme::h5 {

Attribute detail::open_attribute(hid_t object,
                                 const std::string& name,
                                 bool texts,
                                 std::size_t& values) {
  Attribute attribute(TRIREME_H5_OF(object, name, H5Aopen(object, name.c_str(), H5P_DEFAULT)));
  const Type type(TRIREME_H5(H5Aget_type(attribute.get())));
  const bool is_text = TRIREME_H5(H5Tget_class(type.get())) == H5T_STRING;
  if (is_text != texts || (texts && TRIREME_H5(H5Tis_variable_str(type.get())) == 0))
    throw DamagedError("HDF5", about("reading attribute", object, name),
                       texts ? "it is not a string" : "it is not a number");
  const Space space(TRIREME_H5(H5Aget_space(attribute.get())));
  values = static_cast<std::size_t>(TRIREME_H5(H5Sget_simple_extent_npoints(space.get())));
  return attribute;
}

void detail::refuse_list(hid_t object, const std::string& name) {
  throw DamagedError("HDF5", about("reading attribute", object, name), "it is not a single value");
}

void write_attribute(hid_t object,
                     const std::string& name,
                     const Type& type,
                     std::int64_t values,
                     const void* data) {
  if (has_attribute(object, name))
    TRIREME_H5_OF(object, name, H5Adelete(object, name.c_str()));
  const hsize_t dims[] = {static_cast<hsize_t>(values)};
  const Space space(values < 0 ? TRIREME_H5(H5Screate(H5S_SCALAR))
                               : TRIREME_H5(H5Screate_simple(1, dims, nullptr)));
  const Attribute attribute(TRIREME_H5_OF(
      object, name,
      H5Acreate2(object, name.c_str(), type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT)));
  if (values != 0)
    TRIREME_H5_OF(object, name, H5Awrite(attribute.get(), type.get(), data));
}

void write_attribute(hid_t object, const std::string& name, const char* value) {
  write_attribute(object, name, type_of<std::string>(), -1, &value);
}

bool has_attribute(hid_t object, const std::string& name) {
  return TRIREME_H5_OF(object, name, H5Aexists(object, name.c_str())) > 0;
}

std::vector<std::string> attribute_names(hid_t object) {
  std::vector<std::string> names;
  const auto collect = [](hid_t, const char* name, const H5A_info_t*, void* out) -> herr_t {
    static_cast<std::vector<std::string>*>(out)->emplace_back(name);
    return 0;
  };
  hsize_t position = 0;
  TRIREME_H5_OF(object, "",
                H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_NATIVE, &position, collect, &names));
  std::ranges::sort(names);
  return names;
}

}  // namespace trireme::h5
