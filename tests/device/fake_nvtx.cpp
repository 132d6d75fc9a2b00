// SPDX-License-Identifier: Apache-2.0
// A fake profiler that NVTX loads: it records the names of started ranges, and "end".
#include <cstring>
#include <string>

#include <nvtx3/nvToolsExt.h>

namespace {

std::string told;

int push(const char* name) {
  told += std::string(name) + ' ';
  return 0;
}
int pop() {
  told += "end ";
  return 0;
}

}  // namespace

extern "C" {
const char* fake_nvtx_told() {
  return told.c_str();
}
int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
  const auto* table = static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable functions = nullptr;
  unsigned size = 0;
  if (table == nullptr ||
      table->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &functions, &size) == 0 ||
      size <= NVTX_CBID_CORE_RangePop)
    return 0;
  *functions[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(push);
  *functions[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
  return 1;
}
}
