// SPDX-License-Identifier: Apache-2.0
// Proves that the emulator finds errors: wrong kernels and host code are detected, and right ones
// pass in every order (CMakeLists.txt runs these tests with several seeds, eager and lazy).
#include <array>
#include <cstdint>
#include <vector>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "ops/cuda/mma.cuh"

#include "queue.hpp"
#include "settings.hpp"

namespace emulated {
namespace {

constexpr int threads = 96;

class Kernels : public ::testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&memory_), threads * sizeof(int)), cudaSuccess);
  }
  void TearDown() override {
    EXPECT_EQ(cudaFree(memory_), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
  }

  static cudaLaunchConfig_t shape(unsigned blocks, unsigned width, cudaStream_t stream) {
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(width);
    config.stream = stream;
    return config;
  }
  template <class... Parameters>
  cudaError_t launch(void (*kernel)(Parameters...), std::type_identity_t<Parameters>... arguments) {
    const auto config = shape(1, threads, stream_);
    return cudaLaunchKernelEx(&config, kernel, arguments...);
  }
  [[nodiscard]] std::array<int, threads> read(cudaStream_t stream) const {
    std::array<int, threads> host{};
    EXPECT_EQ(cudaMemcpyAsync(host.data(), memory_, sizeof host, cudaMemcpyDefault, stream),
              cudaSuccess);
    return host;
  }
  void die(void (*kernel)(int*), int* argument) {
    static_cast<void>(launch(kernel, argument));
    static_cast<void>(cudaStreamSynchronize(stream_));
  }

  cudaStream_t stream_ = nullptr;
  int* memory_ = nullptr;
};

template <bool WithBarrier>
__global__ void neighbours(int* out, int round) {
  __shared__ int shared[threads];
  const auto i = static_cast<int>(threadIdx.x);
  shared[i] = threads * round + i;
  if (WithBarrier)
    __syncthreads();
  out[i] = shared[(i + 1) % threads];
}

TEST_F(Kernels, AMissingBarrierShowsInEveryOrder) {
  for (int round = 1; round < 4; ++round) {
    std::array<int, threads> expected{};
    for (int i = 0; i < threads; ++i)
      expected[static_cast<std::size_t>(i)] = threads * round + (i + 1) % threads;
    ASSERT_EQ(launch(neighbours<true>, memory_, round), cudaSuccess);
    EXPECT_EQ(read(stream_), expected);
    ASSERT_EQ(launch(neighbours<false>, memory_, round), cudaSuccess);
    EXPECT_NE(read(stream_), expected);
  }
}

__global__ void sums_of_warps(int* out) {
  if (threadIdx.x == 5)
    return;  // a thread that has ended does not block a barrier
  __syncthreads();
  if (threadIdx.x < warp_lanes)
    return;
  auto sum = static_cast<int>(threadIdx.x);
  for (int offset = warp_lanes / 2; offset > 0; offset /= 2)
    sum += __shfl_xor_sync(0xffffffffU, sum, offset);
  out[threadIdx.x] = sum;
}

TEST_F(Kernels, LanesGiveEachOtherValues) {
  ASSERT_EQ(launch(sums_of_warps, memory_), cudaSuccess);
  const auto sums = read(stream_);
  EXPECT_EQ(sums[32], (32 + 63) * 32 / 2);
  EXPECT_EQ(sums[95], (64 + 95) * 32 / 2);
  EXPECT_EQ(sums[0], 0x7fa07fa0);  // unchanged
}

/// Repeated sums over all warps. One barrier per round is enough with two buffers.
template <int Buffers>
__global__ void turns(int* out) {
  __shared__ int shared[Buffers][threads / warp_lanes];
  const auto warp = threadIdx.x / warp_lanes;
  int total = 0;
  for (int turn = 0; turn < 4; ++turn) {
    int sum = turn;
    for (int offset = warp_lanes / 2; offset > 0; offset /= 2)
      sum += __shfl_xor_sync(0xffffffffU, sum, offset);
    if (threadIdx.x % warp_lanes == 0)
      shared[turn % Buffers][warp] = sum;
    __syncthreads();
    for (const int of_warp : shared[turn % Buffers]) total += of_warp;
  }
  out[threadIdx.x] = total;
}

TEST_F(Kernels, AWarpThatRunsAheadShowsWhatIsOverwrittenTooEarly) {
  std::array<int, threads> expected{};
  expected.fill(threads * (0 + 1 + 2 + 3));
  ASSERT_EQ(launch(turns<2>, memory_), cudaSuccess);
  EXPECT_EQ(read(stream_), expected);
  ASSERT_EQ(launch(turns<1>, memory_), cudaSuccess);
  if (Chooser().order() == Order::reverse) {
    EXPECT_NE(read(stream_), expected);
  }
}

__global__ void diverging(int* out) {
  if (threadIdx.x == 40)
    __syncwarp();
  else
    __syncthreads();
  out[threadIdx.x] = 0;
}
__global__ void from_an_ended_lane(int* out) {
  if (threadIdx.x == 3)
    return;
  out[threadIdx.x] = __shfl_sync(0xffffffffU, static_cast<int>(threadIdx.x), 3);
}
__global__ void one_beyond(int* out) {
  out[threadIdx.x + 1] = 0;
}

TEST_F(Kernels, WrongOnesEndTheProcess) {
  EXPECT_DEATH(die(diverging, memory_), "block \\(0, 0, 0\\) cannot go on");
  EXPECT_DEATH(die(from_an_ended_lane, memory_), "takes the value of lane 3, which gives none");
  int of_host[threads];
  EXPECT_DEATH(die(sums_of_warps, of_host), "memory of the host that is not page-locked");
#ifdef __SANITIZE_ADDRESS__
  EXPECT_DEATH(die(one_beyond, memory_), "heap-buffer-overflow");
#endif
}

TEST_F(Kernels, ImpossibleShapesAreRefused) {
  for (const auto& config :
       {shape(1, 1025, stream_), shape(0, 32, stream_), shape(1, 0, stream_)}) {
    EXPECT_EQ(cudaLaunchKernelEx(&config, sums_of_warps, memory_), cudaErrorInvalidConfiguration);
    EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  }
  EXPECT_EQ(cudaFree(&stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(memory_, memory_, 4, cudaMemcpyHostToDevice, stream_),
            cudaErrorInvalidMemcpyDirection);
}

TEST_F(Kernels, AForgottenWaitShowsWhenLazy) {
  cudaStream_t other = nullptr;
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  ASSERT_EQ(launch(neighbours<true>, memory_, 1), cudaSuccess);
  if (is_lazy()) {
    EXPECT_EQ(read(other)[0], 0x7fa07fa0);
  }
  ASSERT_EQ(cudaEventRecord(event, stream_), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(other, event, 0), cudaSuccess);
  EXPECT_EQ(read(other)[0], threads + 1);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(other), cudaSuccess);
}

/// Small integers: exact in bf16, and their sums are exact in fp32.
int of_a(int row, int k) {
  return (7 * row + 5 * k + row * k) % 17 - 8;
}
int of_b(int k, int column) {
  return (11 * k + 3 * column + k * k * column) % 15 - 7;
}
std::uint32_t pair_of(int low, int high) {
  return trireme::ops::cuda::rounded_pair(static_cast<float>(low), static_cast<float>(high));
}

enum class Fragments : std::uint8_t { by_hand, from_rows, from_columns };

/// One warp computes out = A B with 16 x 16 matrices.
template <Fragments how>
__global__ void matrix_product(float* out) {
  constexpr int step = 24;  // elements between rows: 48 bytes
  alignas(16) __shared__ std::uint16_t a[16 * step], b[16 * step], b_columns[16 * step];
  const auto lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < 16 * 16; i += warp_lanes) {
    const int row = i / 16, column = i % 16;
    a[row * step + column] = static_cast<std::uint16_t>(pair_of(of_a(row, column), 0));
    b[row * step + column] = static_cast<std::uint16_t>(pair_of(of_b(row, column), 0));
    b_columns[column * step + row] = b[row * step + column];
  }
  __syncthreads();
  // Named as in the figures of the PTX ISA: groupID and threadID_in_group.
  const int group = lane / 4, member = lane % 4;
  std::uint32_t of_lane_a[4], of_lane_b[4];
  if (how == Fragments::by_hand) {
    for (int i = 0; i < 8; i += 2) {
      const int row = i < 2 || (i >= 4 && i < 6) ? group : group + 8;
      const int column = member * 2 + (i < 4 ? 0 : 8);
      of_lane_a[i / 2] = pair_of(of_a(row, column), of_a(row, column + 1));
    }
    for (int i = 0; i < 8; i += 2) {
      const int row = member * 2 + (i % 4 < 2 ? 0 : 8), column = group + i / 4 * 8;
      of_lane_b[i / 2] = pair_of(of_b(row, column), of_b(row + 1, column));
    }
  } else {
    trireme::ops::cuda::load_matrices(of_lane_a, a + lane % 16 * step + lane / 16 * 8);
    if (how == Fragments::from_rows)
      trireme::ops::cuda::load_transposed(of_lane_b, b + lane % 16 * step + lane / 16 * 8);
    else
      trireme::ops::cuda::load_matrices(
          of_lane_b, b_columns + (lane / 16 * 8 + lane % 8) * step + lane / 8 % 2 * 8);
  }
  for (int half = 0; half < 2; ++half) {
    float c[4];
    for (int i = 0; i < 4; ++i) c[i] = static_cast<float>(1000 + i);
    trireme::ops::cuda::multiply_add(c, of_lane_a, of_lane_b[2 * half], of_lane_b[2 * half + 1]);
    for (int i = 0; i < 4; ++i) {
      const int row = i < 2 ? group : group + 8, column = member * 2 + i % 2 + 8 * half;
      out[row * 16 + column] = c[i] - static_cast<float>(1000 + i);
    }
  }
}

TEST_F(Kernels, TensorCoresMultiplyFragmentsAsThePtxIsaLaysThemOut) {
  float* out = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&out), 256 * sizeof(float)), cudaSuccess);
  const auto config = shape(1, warp_lanes, stream_);
  for (auto* kernel : {matrix_product<Fragments::by_hand>, matrix_product<Fragments::from_rows>,
                       matrix_product<Fragments::from_columns>}) {
    ASSERT_EQ(cudaLaunchKernelEx(&config, kernel, out), cudaSuccess);
    std::array<float, 256> found{};
    ASSERT_EQ(cudaMemcpyAsync(found.data(), out, sizeof found, cudaMemcpyDefault, stream_),
              cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    for (int i = 0; i < 256; ++i) {
      double expected = 0;
      for (int k = 0; k < 16; ++k) expected += double{1} * of_a(i / 16, k) * of_b(k, i % 16);
      EXPECT_EQ(found[static_cast<std::size_t>(i)], expected) << i;
    }
  }
  EXPECT_EQ(cudaFree(out), cudaSuccess);
}

__global__ void product_of_a_part(int* out) {
  if (threadIdx.x % warp_lanes == 9)
    return;
  float c[4] = {};
  trireme::ops::cuda::multiply_add(c, {0, 0, 0, 0}, 0, 0);
  out[threadIdx.x] = static_cast<int>(c[0]);
}
__global__ void matrices_off_their_places(int* out) {
  alignas(16) __shared__ std::uint16_t rows[16 * 16];
  std::uint32_t words[4];
  trireme::ops::cuda::load_matrices(words, rows + threadIdx.x % 16 * 12);
  out[threadIdx.x] = static_cast<int>(words[0]);
}

TEST_F(Kernels, TensorCoresTakeWholeWarpsAndWholeRows) {
  EXPECT_DEATH(die(product_of_a_part, memory_), "multiplies without its lane 9");
  EXPECT_DEATH(die(matrices_off_their_places, memory_), "is not a multiple of 16");
}

/// Copies from global memory through shared memory to the neighbour's position.
template <bool WithWait>
__global__ void copied(int* out) {
  alignas(16) __shared__ int shared[threads];
  const auto i = static_cast<int>(threadIdx.x);
  if (i % 4 == 0)
    trireme::ops::cuda::copy_ahead(shared + i, out + i, i < 48);
  if (WithWait)
    trireme::ops::cuda::wait_for_copies();
  __syncthreads();
  out[i] = shared[(i + 4) % threads];
  trireme::ops::cuda::wait_for_copies();
}
__global__ void left_behind(int* out) {
  alignas(16) __shared__ int shared[4];
  trireme::ops::cuda::copy_ahead(shared, out, threadIdx.x == 0);
}

TEST_F(Kernels, CopiesAreThereAfterTheWaitAndNoEarlier) {
  std::array<int, threads> given{}, expected{};
  for (int i = 0; i < threads; ++i) given[static_cast<std::size_t>(i)] = 100 + i;
  for (int i = 0; i < threads; ++i)
    expected[static_cast<std::size_t>(i)] =
        (i + 4) % threads < 48 ? given[static_cast<std::size_t>((i + 4) % threads)] : 0;
  for (auto* kernel : {copied<true>, copied<false>}) {
    ASSERT_EQ(cudaMemcpyAsync(memory_, given.data(), sizeof given, cudaMemcpyDefault, stream_),
              cudaSuccess);
    ASSERT_EQ(launch(kernel, memory_), cudaSuccess);
    const bool waits = kernel == copied<true>;
    EXPECT_EQ(read(stream_) == expected, waits);
  }
  EXPECT_DEATH(die(left_behind, memory_), "ends without waiting for its copies");
}

__global__ void count_up(int* out) {
  out[threadIdx.x] += 1;
}

TEST_F(Kernels, AGraphRunsAtItsLaunchesOnly) {
  ASSERT_EQ(cudaMemsetAsync(memory_, 0, threads * sizeof(int), stream_), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  const auto before = num_submissions();
  for (int i = 0; i < 3; ++i) ASSERT_EQ(launch(count_up, memory_), cudaSuccess);
  EXPECT_EQ(num_submissions(), before);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(read(stream_)[7], 0);
  EXPECT_EQ(cudaGraphLaunch(executable, stream_), cudaSuccess);
  EXPECT_EQ(cudaGraphLaunch(executable, stream_), cudaSuccess);
  EXPECT_EQ(num_submissions(), before + 3);  // one of them is the copy
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  EXPECT_EQ(read(stream_)[7], 6);
}

TEST_F(Kernels, ACaptureForbidsWhatWouldWait) {
  const auto spoils = [&](const auto& call) {
    ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    EXPECT_EQ(call(), cudaErrorStreamCaptureUnsupported);
    EXPECT_EQ(launch(count_up, memory_), cudaErrorStreamCaptureInvalidated);
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(graph, nullptr);
  };
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  void* more = nullptr;
  spoils([&] { return cudaStreamSynchronize(stream_); });
  spoils([&] { return cudaMalloc(&more, 16); });
  spoils([&] { return cudaEventQuery(event); });
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
}

}  // namespace
}  // namespace emulated
