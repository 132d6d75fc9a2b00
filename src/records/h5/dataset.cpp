// SPDX-License-Identifier: Apache-2.0
#include "h5/dataset.hpp"

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "base/text.hpp"

namespace trireme::h5 {
namespace {

Space line(std::int64_t elements, bool extendible) {
  const hsize_t dims[] = {static_cast<hsize_t>(elements)};
  const hsize_t most[] = {H5S_UNLIMITED};
  return Space(TRIREME_H5(H5Screate_simple(1, dims, extendible ? most : nullptr)));
}

Properties creation() {
  Properties properties(TRIREME_H5(H5Pcreate(H5P_DATASET_CREATE)));
  TRIREME_H5(H5Pset_fill_time(properties.get(), H5D_FILL_TIME_NEVER));
  // Object times would make files with equal content differ; attributes store the creation time.
  TRIREME_H5(H5Pset_obj_track_times(properties.get(), false));
  return properties;
}

void select(const Space& space, std::int64_t begin, std::int64_t count) {
  const hsize_t start[] = {static_cast<hsize_t>(begin)};
  const hsize_t block[] = {static_cast<hsize_t>(count)};
  TRIREME_H5(H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start, nullptr, block, nullptr));
}

DatasetId create(hid_t parent,
                 const std::string& name,
                 const Type& type,
                 const Space& space,
                 const Properties& properties) {
  return DatasetId(TRIREME_H5_OF(parent, name,
                                 H5Dcreate2(parent, name.c_str(), type.get(), space.get(),
                                            H5P_DEFAULT, properties.get(), H5P_DEFAULT)));
}

/// Transfer properties with static buffers for type conversion. HDF5 would allocate 1 MiB per
/// transfer, and 1.10.8 corrupts the heap if that fails. Callers must hold the LibraryLock.
Properties with_room_for_conversions() {
  constexpr std::size_t bytes = std::size_t{256} << 10U;
  alignas(64) static std::array<std::byte, bytes> converted, background;
  Properties how(TRIREME_H5(H5Pcreate(H5P_DATASET_XFER)));
  TRIREME_H5(H5Pset_buffer(how.get(), bytes, converted.data(), background.data()));
  return how;
}

/// Writes a fixed-length text attribute, as HDF5's dimension scales require.
void write_fixed_text(hid_t object, const char* name, const std::string& text) {
  const Type type(TRIREME_H5(H5Tcopy(H5T_C_S1)));
  TRIREME_H5(H5Tset_size(type.get(), text.size() + 1));
  write_attribute(object, name, type, -1, text.c_str());
}

hobj_ref_t reference_to(const Dataset& dataset) {
  hobj_ref_t reference{};
  TRIREME_H5_OF(dataset.id(), "",
                H5Rcreate(&reference, dataset.id(), ".", H5R_OBJECT, H5I_INVALID_HID));
  return reference;
}

}  // namespace

Type detail::text_type() {
  Type type(TRIREME_H5(H5Tcopy(H5T_C_S1)));
  TRIREME_H5(H5Tset_size(type.get(), H5T_VARIABLE));
  TRIREME_H5(H5Tset_cset(type.get(), H5T_CSET_UTF8));
  return type;
}

Type detail::number_type(bool real, bool with_sign, std::size_t bytes) {
  if (real && bytes == 2) {
    // Sign at bit 15, exponent of 8 bits at 7 with bias 127, mantissa of 7 bits at 0.
    Type type(TRIREME_H5(H5Tcopy(H5T_IEEE_F32LE)));
    TRIREME_H5(H5Tset_fields(type.get(), 15, 7, 8, 0, 7));
    TRIREME_H5(H5Tset_precision(type.get(), 16));
    TRIREME_H5(H5Tset_size(type.get(), 2));
    TRIREME_H5(H5Tset_ebias(type.get(), 127));
    return type;
  }
  if (real)
    return Type(TRIREME_H5(H5Tcopy(bytes == 4 ? H5T_NATIVE_FLOAT : H5T_NATIVE_DOUBLE)));
  if (with_sign)
    return Type(TRIREME_H5(H5Tcopy(bytes == 4 ? H5T_NATIVE_INT32 : H5T_NATIVE_INT64)));
  return Type(TRIREME_H5(H5Tcopy(bytes == 1   ? H5T_NATIVE_UINT8
                                 : bytes == 2 ? H5T_NATIVE_UINT16
                                 : bytes == 4 ? H5T_NATIVE_UINT32
                                              : H5T_NATIVE_UINT64)));
}

Type type_of(DType dtype) {
  constexpr Type (*types[])() = {type_of<float>,        type_of<Bf16>,
                                 type_of<double>,       type_of<std::int32_t>,
                                 type_of<std::uint8_t>, type_of<std::int64_t>};
  return types[static_cast<std::size_t>(dtype)]();
}

std::vector<const char*> pointers_to(std::span<const std::string> texts) {
  std::vector<const char*> pointers;
  pointers.reserve(texts.size());
  for (const std::string& text : texts) pointers.push_back(text.c_str());
  return pointers;
}

std::vector<std::string> take_texts(std::vector<char*> texts) {
  std::vector<std::string> values;
  values.reserve(texts.size());
  for (const char* text : texts) values.emplace_back(text == nullptr ? "" : text);
  if (!texts.empty())
    TRIREME_H5(H5Dvlen_reclaim(type_of<std::string>().get(), line(std::ssize(texts), false).get(),
                               H5P_DEFAULT, texts.data()));
  return values;
}

Type compound_type(std::size_t size_bytes, std::initializer_list<Member> members) {
  Type type(TRIREME_H5(H5Tcreate(H5T_COMPOUND, size_bytes)));
  for (const Member& member : members)
    TRIREME_H5(H5Tinsert(type.get(), member.name, member.offset, member.type.get()));
  return type;
}

Dataset Dataset::create_extendible(hid_t parent,
                                   const std::string& name,
                                   const Type& type,
                                   std::int64_t chunk) {
  const Properties properties = creation();
  // HDF5 fills strings in any case: a pointer that was never written must be null.
  if (TRIREME_H5(H5Tdetect_class(type.get(), H5T_VLEN)) > 0 ||
      TRIREME_H5(H5Tdetect_class(type.get(), H5T_STRING)) > 0)
    TRIREME_H5(H5Pset_fill_time(properties.get(), H5D_FILL_TIME_IFSET));
  const hsize_t chunks[] = {static_cast<hsize_t>(chunk)};
  TRIREME_H5(H5Pset_chunk(properties.get(), 1, chunks));
  return Dataset(create(parent, name, type, line(0, true), properties));
}

Dataset Dataset::create_fixed(hid_t parent,
                              const std::string& name,
                              const Type& type,
                              std::int64_t elements) {
  const Properties properties = creation();
  TRIREME_H5(H5Pset_alloc_time(properties.get(), H5D_ALLOC_TIME_EARLY));
  return Dataset(create(parent, name, type, line(elements, false), properties));
}

Dataset Dataset::open(hid_t parent, const std::string& name) {
  Dataset dataset(
      DatasetId(TRIREME_H5_OF(parent, name, H5Dopen2(parent, name.c_str(), H5P_DEFAULT))));
  const Space space(TRIREME_H5(H5Dget_space(dataset.id())));
  if (TRIREME_H5(H5Sget_simple_extent_ndims(space.get())) != 1)
    throw DamagedError("HDF5", detail::about("opening", parent, name), "it is not one-dimensional");
  return dataset;
}

std::int64_t Dataset::elements() const {
  const Space space(TRIREME_H5(H5Dget_space(id())));
  return TRIREME_H5(H5Sget_simple_extent_npoints(space.get()));
}

std::int64_t Dataset::stored_elements() const {
  const std::int64_t claimed = elements();
  const Properties creation(TRIREME_H5_OF(id(), "", H5Dget_create_plist(id())));
  if (claimed == 0 || TRIREME_H5(H5Pget_layout(creation.get())) == H5D_VIRTUAL)
    return claimed;
  const Handle<&H5Fclose> file(TRIREME_H5_OF(id(), "", H5Iget_file_id(id())));
  hsize_t bytes = 0;
  TRIREME_H5_OF(id(), "", H5Fget_filesize(file.get(), &bytes));
  const LibraryLock lock;
  const hsize_t stored = H5Dget_storage_size(id());  // 0 if nothing is stored, or on failure
  if (const std::string reason = innermost_message(); stored == 0 && H5Eget_num(H5E_DEFAULT) > 0)
    detail::fail(detail::about("H5Dget_storage_size", id(), ""), reason);
  if (static_cast<hsize_t>(claimed) > std::min(bytes, stored) / element_bytes())
    throw DamagedError("HDF5", detail::about("reading", id(), ""),
                       fmt::format("it states {} elements, but the file contains {}", claimed,
                                   bytes_text(std::min(bytes, stored))));
  return claimed;
}

std::int64_t Dataset::file_offset() const {
  const LibraryLock lock;
  detail::silence();
  const haddr_t offset = H5Dget_offset(id());  // unsigned, so HADDR_UNDEF marks a failure
  if (const std::string reason = innermost_message(); offset == HADDR_UNDEF)
    detail::fail(detail::about("H5Dget_offset", id(), ""), reason);
  return static_cast<std::int64_t>(offset);
}

Type Dataset::type() const {
  return Type(TRIREME_H5(H5Dget_type(id())));
}

std::size_t Dataset::element_bytes() const {
  const Type disk = type();
  const LibraryLock lock;
  return H5Tget_size(disk.get());
}

void Dataset::transfer(
    std::int64_t begin, std::int64_t count, const Type& type, const void* from, void* to) const {
  TRIREME_EXPECT(begin >= 0 && count >= 0 && begin + count <= elements(),
                 "elements [{}, {}) of a dataset with {}", begin, begin + count, elements());
  if (count == 0)
    return;
  const Space memory = line(count, false);
  const Space file(TRIREME_H5(H5Dget_space(id())));
  select(file, begin, count);
  const LibraryLock lock;  // protects the static conversion buffers
  const Properties how = with_room_for_conversions();
  if (to != nullptr)
    TRIREME_H5_OF(id(), "", H5Dread(id(), type.get(), memory.get(), file.get(), how.get(), to));
  else
    TRIREME_H5_OF(id(), "", H5Dwrite(id(), type.get(), memory.get(), file.get(), how.get(), from));
}

void Dataset::read(std::int64_t begin, std::int64_t count, const Type& type, void* data) const {
  transfer(begin, count, type, nullptr, data);
}

void Dataset::write(std::int64_t begin, std::int64_t count, const Type& type, const void* data) {
  transfer(begin, count, type, data, nullptr);
}

void Dataset::append(std::int64_t count, const Type& type, const void* data) {
  const std::int64_t begin = elements();
  resize(begin + count);
  write(begin, count, type, data);
}

void Dataset::resize(std::int64_t elements) {
  const hsize_t dims[] = {static_cast<hsize_t>(elements)};
  TRIREME_H5_OF(id(), "", H5Dset_extent(id(), dims));
}

// Writes the attributes of the HDF5 Dimension Scale Specification, 2005, as the high-level library
// does.
void make_scale(const Dataset& scale, const std::string& name, std::span<const Dataset> others) {
  write_fixed_text(scale.id(), "CLASS", "DIMENSION_SCALE");
  write_fixed_text(scale.id(), "NAME", name);
  struct Use {
    hobj_ref_t dataset;
    int dimension;
  };
  const Type reference(TRIREME_H5(H5Tcopy(H5T_STD_REF_OBJ)));
  const Type whole(TRIREME_H5(H5Tcopy(H5T_NATIVE_INT)));
  const Type list(TRIREME_H5(H5Tvlen_create(H5T_STD_REF_OBJ)));
  hobj_ref_t to_scale = reference_to(scale);
  std::vector<Use> uses;
  for (const Dataset& other : others) {
    const hvl_t scales{1, &to_scale};
    write_attribute(other.id(), "DIMENSION_LIST", list, 1, &scales);
    uses.push_back({reference_to(other), 0});
  }
  if (uses.empty())
    return;
  const Type use = compound_type(sizeof(Use), {{"dataset", offsetof(Use, dataset), reference},
                                               {"dimension", offsetof(Use, dimension), whole}});
  write_attribute(scale.id(), "REFERENCE_LIST", use, std::ssize(uses), uses.data());
}

Dataset create_virtual(hid_t parent,
                       const std::string& name,
                       const Type& type,
                       std::int64_t elements,
                       std::span<const VirtualPiece> pieces) {
  const Properties properties(TRIREME_H5(H5Pcreate(H5P_DATASET_CREATE)));
  for (const VirtualPiece& piece : pieces) {
    const Space whole = line(elements, false);
    select(whole, piece.begin, piece.count);
    const Space source = line(piece.count, false);
    TRIREME_H5(H5Pset_virtual(properties.get(), whole.get(), piece.file.c_str(),
                              piece.dataset.c_str(), source.get()));
  }
  const DatasetId made = create(parent, name, type, line(elements, false), properties);
  return Dataset::open(parent, name);
}

}  // namespace trireme::h5
