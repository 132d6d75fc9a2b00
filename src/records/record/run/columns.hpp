// SPDX-License-Identifier: Apache-2.0
// Tables in HDF5: a group that holds one 1-D extendible dataset per column, each with the
// attributes `units` and `long_name` (of the conventions that xarray and netCDF tools read); row i
// is element i of all of them, and the first column is the dimension scale of the others. A table
// is declared as an array of Column: its datasets are made from that array, and its rows are
// written by it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "h5/attribute.hpp"
#include "h5/dataset.hpp"
#include "h5/file.hpp"

namespace trireme::record {

/// A dataset that holds one member of every row; `Types` are those that the members have.
template <class Row, class... Types>
struct Column {
  const char* name;
  const char* unit;
  const char* help;
  std::variant<Types Row::*...> member;
};

/// Empty; `chunk` elements are allocated at a time.
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

/// All columns of a table, empty.
template <class Columns>
std::vector<h5::Dataset> add_columns(hid_t parent, const Columns& columns, std::int64_t chunk) {
  std::vector<h5::Dataset> datasets;
  for (const auto& column : columns) {
    const auto type_of = []<class Row, class T>(T Row::*) {
      if constexpr (std::is_same_v<T, std::string>)
        return h5::string_type();
      else
        return h5::type_of<T>();
    };
    datasets.push_back(add_dataset(parent, column.name, std::visit(type_of, column.member), chunk,
                                   column.unit, column.help));
  }
  h5::make_scale(datasets.front(), columns[0].name, std::span(datasets).subspan(1));
  return datasets;
}

/// The member of every row, after what `dataset` holds.
template <class Row, class... Types>
void append_column(h5::Dataset& dataset,
                   const Column<Row, Types...>& column,
                   std::span<const Row> rows) {
  const auto append = [&]<class T>(T Row::*member) {
    std::vector<T> values;
    values.reserve(rows.size());
    for (const Row& row : rows) values.push_back(row.*member);
    if constexpr (std::is_same_v<T, std::string>)
      dataset.append_strings(values);
    else
      dataset.append<T>(values);
  };
  std::visit(append, column.member);
}

}  // namespace trireme::record
