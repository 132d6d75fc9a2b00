// SPDX-License-Identifier: Apache-2.0
// Tables in HDF5: a group that holds one 1-D extendible dataset per column, each with the
// attributes `units` and `long_name` (of the conventions that xarray and netCDF tools read); row i
// is element i of all of them, and the first column is the dimension scale of the others. The
// columns are those that Row::columns() lists (rows.hpp).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "h5/dataset.hpp"
#include "h5/file.hpp"
#include "record/run/rows.hpp"

namespace trireme::record {

/// Creates an empty dataset that grows in chunks of `chunk` elements.
inline h5::Dataset add_dataset(hid_t parent,
                               const char* name,
                               const h5::Type& type,
                               std::int64_t chunk,
                               const char* unit,
                               const char* help) {
  h5::Dataset dataset = h5::Dataset::create_extendible(parent, name, type, chunk);
  h5::write_attribute(dataset.id(), "units", unit);
  h5::write_attribute(dataset.id(), "long_name", help);
  return dataset;
}

/// A table that grows by appended rows.
template <class Row>
class Table {
 public:
  explicit Table(const h5::File& file, const std::string& group = Row::table.group) {
    const h5::Group parent = h5::open_group(file.get(), group);
    const char* first = nullptr;
    const Row row;
    Row::columns(row, [&]<class T>(const char* name, const T&, const char* unit, const char* help) {
      first = first == nullptr ? name : first;
      datasets_.push_back(
          add_dataset(parent.get(), name, h5::type_of<T>(), Row::table.chunk, unit, help));
      waiting_.emplace_back(std::vector<T>());
    });
    h5::make_scale(datasets_.front(), first, std::span(datasets_).subspan(1));
  }
  void add(const Row& row) {
    std::size_t i = 0;
    Row::columns(row, [&]<class T>(const char*, const T& value, auto...) {
      std::get<std::vector<T>>(waiting_[i++]).push_back(value);
    });
    if (++rows_ == rows_at_once)
      write();
  }
  /// Writes the rows that add() has buffered.
  void write() {
    for (std::size_t i = 0; i < datasets_.size() && rows_ > 0; ++i)
      std::visit(
          [&]<class T>(std::vector<T>& values) {
            datasets_[i].append<T>(values);
            values.clear();
          },
          waiting_[i]);
    rows_ = 0;
  }

 private:
  static constexpr std::size_t rows_at_once = 4096;  ///< rows per call of HDF5

  using Values =
      std::variant<std::vector<std::int64_t>, std::vector<double>, std::vector<std::string>>;

  std::vector<h5::Dataset> datasets_;
  std::vector<Values> waiting_;  ///< buffered values of each column
  std::size_t rows_ = 0;         ///< number of buffered rows
};

}  // namespace trireme::record
