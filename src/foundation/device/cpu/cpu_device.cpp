// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstdint>
#include <cstring>

#include <sys/mman.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/kernel_text.hpp"
#include "base/text.hpp"
#include "device/cpu/cpu_stream.hpp"
#include "device/device.hpp"

namespace trireme::device {
namespace {

std::string processor_name() {
  const std::string name = value_of(text_of("/proc/cpuinfo"), "model name");
  return name.empty() ? "unknown CPU" : name;
}

constexpr std::size_t huge_page = std::size_t{2} << 20U;

std::size_t whole_pages(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

/// Cuts a mapping down to the `bytes` that begin at its first address aligned to a huge page.
std::byte* trim_to_huge_page(std::byte* at, std::size_t mapped, std::size_t bytes) {
  const std::size_t past = reinterpret_cast<std::uintptr_t>(at) % huge_page;
  const std::size_t head = past == 0 ? 0 : huge_page - past;
  if (head > 0)
    munmap(at, head);
  if (const std::size_t tail = mapped - head - bytes; tail > 0)
    munmap(at + head + bytes, tail);
  return at + head;
}

/// Memory comes from anonymous mappings: zero, page-aligned, returned to the system at once, and
/// aligned to huge pages when at least one fits.
class CpuDevice final : public Device {
 public:
  explicit CpuDevice(int threads) : threads_(threads) {}

  [[nodiscard]] Kind kind() const override { return Kind::cpu; }

  [[nodiscard]] std::string description() const override {
    return fmt::format("{}, {}", processor_name(), counted(threads_, "thread"));
  }

  [[nodiscard]] MemoryInfo memory() const override {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    return {static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * page,
            static_cast<std::size_t>(sysconf(_SC_AVPHYS_PAGES)) * page};
  }

  std::unique_ptr<Stream> make_stream(StreamMode mode, const std::string& name) override {
    return std::make_unique<cpu::Stream>(*this, mode, name, threads_);
  }
  std::unique_ptr<Event> make_event() override { return std::make_unique<cpu::Event>(); }

  Buffer allocate(std::size_t bytes, std::string_view what) override {
    if (bytes == 0)
      return {};
    const std::size_t pages = whole_pages(bytes);
    const bool huge = bytes >= huge_page;
    const std::size_t mapped = pages + (huge ? huge_page : 0);
    void* at = MAP_FAILED;
    errno = ENOMEM;
    if (mapped >= bytes)  // else the sum has overflowed
      at = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
      throw DeviceError(
          "CPU memory",
          fmt::format("allocate {} ({} bytes) for {}", bytes_text(bytes), bytes, what),
          std::strerror(errno));
    if (!huge)
      return {*this, static_cast<std::byte*>(at), bytes};
    std::byte* start = trim_to_huge_page(static_cast<std::byte*>(at), mapped, pages);
    madvise(start, pages, MADV_HUGEPAGE);  // only advice; failure is harmless
    return {*this, start, bytes};
  }

  void copy(View to, ConstView from, Stream& stream) override {
    TRIREME_EXPECT(to.elements == from.elements && to.dtype == from.dtype, "copy of {} {} to {} {}",
                   from.elements, name(from.dtype), to.elements, name(to.dtype));
    if (!to.empty())
      cpu::stream_of(stream).run([to, from] { std::memcpy(to.data, from.data, from.bytes()); });
  }

  void fill_zero(View to, Stream& stream) override {
    if (!to.empty())
      cpu::stream_of(stream).run([to] { std::memset(to.data, 0, to.bytes()); });
  }

 private:
  void release(std::byte* data, std::size_t bytes) noexcept override {
    munmap(data, whole_pages(bytes));
  }

  int threads_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(int threads) {
  TRIREME_EXPECT(threads >= 1, "{} threads", threads);
  return std::make_unique<CpuDevice>(threads);
}

}  // namespace trireme::device
