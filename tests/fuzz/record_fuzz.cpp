// SPDX-License-Identifier: Apache-2.0
// A record's log with lines cut, repeated and overwritten, or a manifest that is valid HDF5 but has
// content that trireme did not write: links and storage in other files, virtual datasets, lengths,
// types, loops. The first byte selects the file and the second the number of changes. Then follow
// the changes: where, which, and how.
//
// Next to the manifest are a file that must not change and a FIFO that must not block. The fuzzer
// does not change bytes of HDF5 files: the HDF5 library has no sanitizer here.
#include <algorithm>
#include <array>
#include <vector>

#include <sys/stat.h>

#include "base/error.hpp"

#include "h5/file.hpp"
#include "record/checkpoint/manifest.hpp"
#include "record/run/log_line.hpp"
#include "record/run/run_record.hpp"

#include "fuzz.hpp"

namespace {

using namespace trireme;

const record::RunHeader header{.facts = {{"run_id", "0123456789abcdef"}},
                               .deck = {{"run.name", "tiny"}},
                               .hosts = {"node1"},
                               .buckets = {{"b", "a", 96, 2, 32}}};

/// The files as trireme writes them, and the files next to them.
struct Bench {
  Bench() {
    {
      auto run = record::RunRecord::create(directory.path, header);
      for (std::int64_t step = 1; step <= 3; ++step) run.append(record::StepRow{.step = step});
      run.append(record::ValidationRow{3, 5});
      run.append("set", "text: a", record::EvaluationRow{.step = 3, .loss = 2});
      run.append(record::CheckpointRow{.step = 3, .bytes = 1});
      run.close();
    }
    record::Manifest manifest;
    manifest.facts.step = 3;
    manifest.facts.deck = {{"run.name", "tiny"}};
    manifest.parameters = {{"a", {2, 3}, 6}, {"b", {4}, 4}};
    manifest.states = {{"parameter", DType::f32}};
    manifest.file_bytes = {4096};
    manifest.file_frames = {1};
    manifest.pieces = {{.state = 0, .parameter = 0, .rank = 0, .zero = 0, .begin = 0, .count = 6},
                       {.state = 0, .parameter = 1, .rank = 0, .zero = 0, .begin = 0, .count = 4}};
    record::write_manifest(directory.path, manifest);
    log = fuzz::read(directory.path + "/steps.jsonl");
    bytes = fuzz::read(directory.path + "/manifest.h5");
    fuzz::write(victim, bytes);
    fuzz::promise(::mkfifo((directory.path + "/fifo").c_str(), 0600) == 0, "a FIFO can be made");
  }
  fuzz::Directory directory;
  const std::string victim = directory.path + "/victim.h5";
  std::string log, bytes;  ///< of steps.jsonl, of manifest.h5
};

herr_t collect(hid_t, const char* name, const H5L_info_t*, void* names) {
  static_cast<std::vector<std::string>*>(names)->emplace_back(name);
  return 0;
}

enum class Mutation { remove, link, storage, view, text, type, loop, soft, length, count };

/// A dataset of ten numbers with this storage in the place of `name`.
void put_dataset(hid_t file, const std::string& name, hid_t creation) {
  const hsize_t ten[] = {10};
  const h5::Space space(H5Screate_simple(1, ten, nullptr));
  const h5::DatasetId made(H5Dcreate2(file, name.c_str(), H5T_NATIVE_INT64, space.get(),
                                      H5P_DEFAULT, creation, H5P_DEFAULT));
}

/// The target of a change; the last two are next to the file.
std::string target(const Bench& bench, std::uint8_t which) {
  const std::array<std::string, 4> all = {bench.victim, "/etc/passwd", "victim.h5", "fifo"};
  return all[which % all.size()];
}

void put_storage(
    const Bench& bench, hid_t file, const std::string& name, Mutation how, std::uint8_t which) {
  const h5::Properties creation(H5Pcreate(H5P_DATASET_CREATE));
  const hsize_t ten[] = {10};
  const h5::Space space(H5Screate_simple(1, ten, nullptr));
  if (how == Mutation::storage)
    H5Pset_external(creation.get(), target(bench, which).c_str(), 0, 80);
  else
    H5Pset_virtual(creation.get(), space.get(), target(bench, which).c_str(), "/steps/step",
                   space.get());
  put_dataset(file, name, creation.get());
}

void change_one(const Bench& bench, hid_t file, fuzz::Input& input, std::vector<Mutation>& done) {
  std::vector<std::string> names;
  H5Lvisit(file, H5_INDEX_NAME, H5_ITER_INC, collect, &names);
  const std::size_t at = input.take<std::uint8_t>();
  const auto how =
      static_cast<Mutation>(input.take<std::uint8_t>() % static_cast<int>(Mutation::count));
  const auto which = input.take<std::uint8_t>();
  if (names.empty())
    return;
  const std::string name = names[at % names.size()];
  done.push_back(how);
  if (how == Mutation::length) {
    const h5::DatasetId dataset(H5Dopen2(file, name.c_str(), H5P_DEFAULT));
    const hsize_t rows[] = {std::array<hsize_t, 4>{0, 1, 9, hsize_t{1} << 40U}[which % 4]};
    if (dataset)
      H5Dset_extent(dataset.get(), rows);
    return;
  }
  H5Ldelete(file, name.c_str(), H5P_DEFAULT);
  if (how == Mutation::link)
    H5Lcreate_external(target(bench, which).c_str(), ("/" + name).c_str(), file, name.c_str(),
                       H5P_DEFAULT, H5P_DEFAULT);
  else if (how == Mutation::storage || how == Mutation::view)
    put_storage(bench, file, name, how, which);
  else if (how == Mutation::loop)
    H5Lcreate_hard(file, "/", file, name.c_str(), H5P_DEFAULT, H5P_DEFAULT);
  else if (how == Mutation::soft)
    H5Lcreate_soft(which % 2 == 0 ? ("/" + name).c_str() : "/steps/step", file, name.c_str(),
                   H5P_DEFAULT, H5P_DEFAULT);
  else if (how == Mutation::type || how == Mutation::text) {
    const hsize_t shape[] = {2, 5};
    const h5::Space space(H5Screate_simple(which % 2 == 0 ? 1 : 2, shape, nullptr));
    const h5::Type fixed(H5Tcopy(H5T_C_S1));
    H5Tset_size(fixed.get(), 7);
    const h5::DatasetId made(H5Dcreate2(file, name.c_str(),
                                        how == Mutation::text ? fixed.get() : H5T_NATIVE_UCHAR,
                                        space.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  }
}

/// Cuts, repeats and overwrites parts of the log; half of its lines get a matching checksum.
std::string changed_log(const std::string& log, fuzz::Input& input) {
  std::string text = log;
  for (std::size_t count = input.count(3) + 1; count > 0; --count) {
    const std::size_t at = input.take<std::uint16_t>() % (text.size() + 1);
    const std::size_t length = input.take<std::uint8_t>();
    switch (input.take<std::uint8_t>() % 3) {
      case 0:
        text.erase(at, length);
        break;
      case 1:
        text.insert(at, text.substr(at, length));
        break;
      default:
        text.insert(at, 1, static_cast<char>(length));
    }
  }
  if (input.take<std::uint8_t>() % 2 == 0)
    return text;
  std::string summed;
  for (std::size_t begin = 0, end = 0; (end = text.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    const std::string line = text.substr(begin, end - begin);
    const std::string object = line.substr(0, line.rfind(", \"crc32\""));
    summed += fmt::format("{}, \"crc32\": \"{:08x}\"}}\n", object, record::crc32_of(object));
  }
  return summed;
}

/// Continues a record as a run does.
void use_log(const std::string& directory) {
  try {
    const record::LogFacts found = record::look_at_log(directory + "/steps.jsonl");
    auto run = record::RunRecord::resume(directory, header, 2, found);
    run.append(record::StepRow{.step = 3});
    run.close();
  } catch (const UserError&) {
    return;
  }
  const auto found = record::look_at_log(directory + "/steps.jsonl");
  fuzz::promise(found.last_step == 3, "a run continues its record, whatever its lines hold");
}

bool use_manifest(const std::string& directory) {
  fuzz::write(directory + "/manifest.xxh64", record::manifest_sum(directory));
  try {
    const record::Manifest manifest = record::read_manifest(directory);
    static_cast<void>(record::missing_files(directory, manifest));
    return true;
  } catch (const UserError&) {
  } catch (const StorageError&) {
  }
  return false;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Bench bench;
  fuzz::Input input(data, size);
  if (input.take<std::uint8_t>() % 2 == 0) {
    fuzz::write(bench.directory.path + "/steps.jsonl", changed_log(bench.log, input));
    use_log(bench.directory.path);
    return 0;
  }
  const std::string path = bench.directory.path + "/manifest.h5";
  fuzz::write(path, bench.bytes);
  std::vector<Mutation> done;
  {
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
    const h5::Handle<&H5Fclose> file(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT));
    for (std::size_t count = input.count(3) + 1; count > 0; --count)
      change_one(bench, file.get(), input, done);
  }
  const bool taken = use_manifest(bench.directory.path);
  const bool leads_out =
      done.size() == 1 && (done[0] == Mutation::link || done[0] == Mutation::storage);
  fuzz::promise(!(taken && leads_out), "what leads to other files is refused");
  fuzz::promise(fuzz::read(bench.victim) == bench.bytes, "other files stay as they are");
  return 0;
}
