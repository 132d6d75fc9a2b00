// SPDX-License-Identifier: Apache-2.0
// Weights from outside. The first byte says what the rest is:
//
//   0  a safetensors file
//   1  a model file of llm.c
//   2  a folder of Hugging Face: config.json up to a NUL byte, then model.safetensors
//   3  the same with model.safetensors.index.json instead; its shards are not there
#include <algorithm>
#include <vector>

#include "base/error.hpp"

#include "weights/huggingface.hpp"
#include "weights/llmc.hpp"
#include "weights/safetensors.hpp"
#include "weights/tensor_files.hpp"

#include "fuzz.hpp"

namespace {

using namespace trireme;

/// Elements that are read of each tensor: a small file cannot hold more.
constexpr std::int64_t most_elements = 1 << 16;

void use(const weights::SafetensorsHeader& header, std::int64_t file_bytes) {
  std::int64_t bytes = 0;
  for (const auto& tensor : header.tensors) {
    fuzz::promise(tensor.begin <= tensor.end && tensor.end <= file_bytes, "data are in the file");
    bytes += tensor.end - tensor.begin;
  }
  fuzz::promise(bytes <= file_bytes, "tensors do not overlap");
}

void use(const weights::StoredModel& model) {
  weights::TensorReader reader(model);
  std::vector<float> values;
  for (const weights::StoredTensor& tensor : model.tensors) {
    fuzz::promise(tensor.elements() > 0, "a parameter is not empty");
    values.resize(static_cast<std::size_t>(std::min(tensor.elements(), most_elements)));
    reader.read(tensor, tensor.elements() - std::ssize(values),
                view_of(values.data(), std::ssize(values)));
  }
}

void read(std::uint8_t kind, std::string_view rest, const std::string& directory) {
  const std::string model = directory + "/model.safetensors";
  if (kind % 4 == 0) {
    fuzz::write(model, rest);
    use(weights::read_safetensors(files::InputFile(model)), std::ssize(rest));
    return;
  }
  if (kind % 4 == 1) {
    fuzz::write(directory + "/model.bin", rest);
    use(weights::open_llmc(directory + "/model.bin"));
    return;
  }
  const auto end = std::min(rest.find('\0'), rest.size());
  fuzz::write(directory + "/config.json", rest.substr(0, end));
  fuzz::write(kind % 4 == 2 ? model : model + ".index.json",
              rest.substr(std::min(end + 1, rest.size())));
  use(weights::open_huggingface(directory));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const auto kind = input.take<std::uint8_t>();
  const fuzz::Directory directory;
  try {
    read(kind, input.rest(), directory.path);
  } catch (const UserError& error) {
    fuzz::promise(!error.findings().empty(), "a refusal has a reason");
  }
  return 0;
}
