// SPDX-License-Identifier: Apache-2.0
// Typed attributes: strings (UTF-8), whole numbers (int64), numbers (double) and lists of them.
// Writing replaces an attribute of the same name, whatever its type was.
#pragma once

#include <string>
#include <vector>

#include "h5/handle.hpp"

namespace trireme::h5 {

/// T: std::string, std::int64_t, std::uint64_t, double, or a std::vector of the first, second or
/// fourth.
template <class T>
void write_attribute(hid_t object, const std::string& name, const T& value);
void write_attribute(hid_t object, const std::string& name, const char* value);
/// Of any type and space.
void write_attribute(
    hid_t object, const std::string& name, const Type& type, const Space& space, const void* data);

bool has_attribute(hid_t object, const std::string& name);
/// Names in alphabetical order.
std::vector<std::string> attribute_names(hid_t object);

/// Of the same types. Numbers are converted by HDF5. Throws StorageError when it is missing or of
/// another kind.
template <class T>
T read_attribute(hid_t object, const std::string& name);

}  // namespace trireme::h5
