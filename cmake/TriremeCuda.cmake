# TRIREME_CUDA=AUTO|ON|OFF|EMULATED: whether this build can compute on NVIDIA GPUs. If something is missing, AUTO reports it and builds
# without CUDA; ON fails. EMULATED is for tests: the host compiler compiles the kernels with the toolkit's headers, and tests/emulated_gpu
# replaces the libraries. Without the headers it builds without CUDA. The results are the targets trireme_cuda_runtime (the CUDA runtime,
# linked statically), trireme_cuda_math (cuDNN with its front end, and the header of cuBLASLt) and trireme_nccl.
#
# The driver's library is not linked: the runtime opens it at its first use, so a CUDA build also starts on a machine without a driver,
# where it computes on the CPU. cuBLASLt is not linked either: the first matrix product on a GPU opens it
# (src/compute/ops/cuda/cublaslt.hpp).
set(TRIREME_CUDA AUTO CACHE STRING "Build for CUDA: AUTO, ON, OFF or EMULATED")
set_property(CACHE TRIREME_CUDA PROPERTY STRINGS AUTO ON OFF EMULATED)
set(TRIREME_CUDNN_FRONTEND "" CACHE PATH "Folder with cudnn_frontend.h (the package nvidia-cudnn-frontend)")
set(TRIREME_HAVE_CUDA FALSE)
set(TRIREME_CUDA_DESCRIPTION "not in this build")
set(TRIREME_CUDNN_DESCRIPTION "not in this build")
set(TRIREME_NCCL_DESCRIPTION "not in this build")

# The value of `#define NAME number` in a header.
function(trireme_defined file name result)
  file(STRINGS ${file} line REGEX "^#define ${name} +[0-9]+" LIMIT_COUNT 1)
  string(REGEX REPLACE ".* ([0-9]+).*" "\\1" number "${line}")
  set(${result} "${number}" PARENT_SCOPE)
endfunction()

# Minimum versions. ncclMemAlloc exists from NCCL 2.19 on. Names of communicators are set from NCCL 2.27 on.
set(TRIREME_LEAST_CUDA 12.0)
set(TRIREME_LEAST_CUDNN 9.0)
set(TRIREME_LEAST_NCCL 2.19)
# Minimum compute capability, without the point: bf16 tensor cores, and asynchronous copies to shared memory (ops/cuda/mma.cuh).
set(TRIREME_LEAST_CAPABILITY 80)

# Finds out why nvcc does not work: the first error that it reports for a one-line file.
function(trireme_nvcc_error nvcc result)
  set(source ${PROJECT_BINARY_DIR}/CMakeFiles/trireme_nvcc.cu)
  file(WRITE ${source} "int one;\n")
  set(host "")
  if(NOT "$ENV{CUDAHOSTCXX}" STREQUAL "")
    set(host -ccbin $ENV{CUDAHOSTCXX})
  endif()
  execute_process(COMMAND ${nvcc} ${host} -c ${source} -o ${source}.o OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE code)
  if(code EQUAL 0)
    set(reason "it compiles, but CMake's check of it fails; the log is in ${PROJECT_BINARY_DIR}/CMakeFiles")
  elseif(output MATCHES "([^\n]*[Ee]rror[^\n]*)" OR output MATCHES "([^\n]+)")
    string(STRIP "${CMAKE_MATCH_1}" reason)
  else()
    set(reason "exit code ${code}")
  endif()
  string(REGEX REPLACE "[][;]" " " reason "${reason}") # these characters are special in CMake lists
  set(${result} "${reason}" PARENT_SCOPE)
endfunction()

macro(trireme_find_cuda missing)
  include(CheckLanguage)
  # Ampere and Hopper. Newer GPUs compile Hopper's PTX when a program first runs.
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES "80-real;90" CACHE STRING "GPUs to compile for")
  endif()
  # check_language looks at CMAKE_CUDA_COMPILER, CUDACXX and PATH, so a toolkit that is elsewhere is added to PATH. The cache entry is
  # removed because a failed search would not be repeated.
  if(NOT CMAKE_CUDA_COMPILER)
    unset(CMAKE_CUDA_COMPILER CACHE)
    set(_nvcc $ENV{CUDACXX})
    if(NOT _nvcc)
      find_program(_nvcc nvcc PATHS $ENV{CUDA_HOME}/bin $ENV{CUDA_PATH}/bin /usr/local/cuda/bin NO_CMAKE_SYSTEM_PATH NO_CACHE)
      if(_nvcc)
        cmake_path(GET _nvcc PARENT_PATH _nvcc_folder)
        set(ENV{PATH} "$ENV{PATH}:${_nvcc_folder}")
      endif()
    endif()
    if(CMAKE_CUDA_HOST_COMPILER)
      set(ENV{CUDAHOSTCXX} ${CMAKE_CUDA_HOST_COMPILER}) # check_language does not pass the variable on
    endif()
    if(_nvcc)
      check_language(CUDA)
    endif()
  endif()
  if(NOT _nvcc AND NOT CMAKE_CUDA_COMPILER)
    list(APPEND ${missing}
      "the CUDA toolkit (no nvcc on PATH or in /usr/local/cuda/bin; CUDACXX or CMAKE_CUDA_COMPILER may name one, CUDA_HOME its toolkit)")
  elseif(NOT CMAKE_CUDA_COMPILER)
    trireme_nvcc_error(${_nvcc} _reason)
    list(APPEND ${missing} "a CUDA compiler that works, and ${_nvcc} fails: ${_reason} \
(CMAKE_CUDA_HOST_COMPILER or CUDAHOSTCXX may name another C++ compiler for it, CMAKE_CUDA_COMPILER or CUDACXX another nvcc)")
  else()
    find_package(CUDAToolkit QUIET)
    if(CUDAToolkit_VERSION VERSION_LESS TRIREME_LEAST_CUDA OR NOT TARGET CUDA::cudart_static OR NOT TARGET CUDA::cublasLt)
      list(APPEND ${missing} "CUDA ${TRIREME_LEAST_CUDA} or later with cudart_static and cuBLASLt, and found is ${CUDAToolkit_VERSION} of \
${CMAKE_CUDA_COMPILER} (CUDACXX or CMAKE_CUDA_COMPILER may name another nvcc)")
    endif()
    foreach(_architecture IN LISTS CMAKE_CUDA_ARCHITECTURES)
      if(_architecture MATCHES "^[0-9]+" AND CMAKE_MATCH_0 LESS TRIREME_LEAST_CAPABILITY)
        list(APPEND ${missing} "GPUs of compute capability 8.0 or later, and CMAKE_CUDA_ARCHITECTURES has ${_architecture}")
      endif()
    endforeach()
    find_path(TRIREME_CUDNN_INCLUDE cudnn_graph.h HINTS ${CUDAToolkit_INCLUDE_DIRS} $ENV{CUDNN_PATH}/include)
    find_library(TRIREME_CUDNN_LIBRARY NAMES cudnn libcudnn.so.9
      HINTS ${CUDAToolkit_LIBRARY_DIR} $ENV{CUDNN_PATH}/lib $ENV{CUDNN_PATH}/lib64)
    if(TRIREME_CUDNN_INCLUDE AND TRIREME_CUDNN_LIBRARY)
      foreach(part MAJOR MINOR PATCHLEVEL)
        trireme_defined(${TRIREME_CUDNN_INCLUDE}/cudnn_version.h CUDNN_${part} _cudnn_${part})
      endforeach()
    endif()
    if(NOT _cudnn_MAJOR)
      list(APPEND ${missing} "cuDNN ${TRIREME_LEAST_CUDNN} or later (cudnn_graph.h and libcudnn, whose folder CUDNN_PATH may name)")
    elseif("${_cudnn_MAJOR}.${_cudnn_MINOR}" VERSION_LESS TRIREME_LEAST_CUDNN)
      list(APPEND ${missing} "cuDNN ${TRIREME_LEAST_CUDNN} or later, and ${TRIREME_CUDNN_INCLUDE} has ${_cudnn_MAJOR}.${_cudnn_MINOR} \
(CUDNN_PATH may name another folder)")
    elseif("${_cudnn_MAJOR}.${_cudnn_MINOR}" VERSION_LESS 9.16)
      message(STATUS "cuDNN ${_cudnn_MAJOR}.${_cudnn_MINOR} is below 9.16: bf16 with a context that is no multiple of 128 goes without graphs")
    endif()
    find_path(TRIREME_CUDNN_FRONTEND_INCLUDE cudnn_frontend.h
      HINTS ${TRIREME_CUDNN_FRONTEND} ${TRIREME_CUDNN_FRONTEND}/include ${PROJECT_SOURCE_DIR}/build-deps/cudnn-frontend/include)
    if(NOT TRIREME_CUDNN_FRONTEND_INCLUDE)
      list(APPEND ${missing}
        "cuDNN's front end (bash modules/packages/cudnn_frontend.sh fetches it, and TRIREME_CUDNN_FRONTEND may name its folder)")
    endif()
    find_path(TRIREME_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} $ENV{NCCL_HOME}/include)
    find_library(TRIREME_NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${CUDAToolkit_LIBRARY_DIR} $ENV{NCCL_HOME}/lib)
    if(NOT TRIREME_NCCL_INCLUDE OR NOT TRIREME_NCCL_LIBRARY)
      list(APPEND ${missing} "NCCL ${TRIREME_LEAST_NCCL} or later (nccl.h and libnccl, whose folder NCCL_HOME may name)")
    else()
      foreach(part MAJOR MINOR PATCH)
        trireme_defined(${TRIREME_NCCL_INCLUDE}/nccl.h NCCL_${part} _nccl_${part})
      endforeach()
      if("${_nccl_MAJOR}.${_nccl_MINOR}" VERSION_LESS TRIREME_LEAST_NCCL)
        list(APPEND ${missing} "NCCL ${TRIREME_LEAST_NCCL} or later, and ${TRIREME_NCCL_INCLUDE} has ${_nccl_MAJOR}.${_nccl_MINOR} \
(NCCL_HOME may name another folder)")
      endif()
    endif()
  endif()
endmacro()

set(_missing "")
if(TRIREME_CUDA STREQUAL "EMULATED")
  include(TriremeEmulatedCuda)
elseif(TRIREME_CUDA)
  trireme_find_cuda(_missing)
  if(_missing)
    list(JOIN _missing "\n  " _missing)
    if(TRIREME_CUDA STREQUAL "AUTO")
      message(STATUS "Without CUDA; it would take\n  ${_missing}")
    else()
      message(FATAL_ERROR "TRIREME_CUDA=${TRIREME_CUDA}, but these were not found:\n  ${_missing}\nLoad or name them, or build for CPUs with -DTRIREME_CUDA=OFF.")
    endif()
  else()
    set(TRIREME_HAVE_CUDA TRUE)
  endif()
endif()

if(TRIREME_HAVE_CUDA AND NOT TRIREME_CUDA STREQUAL "EMULATED")
  set(CMAKE_CUDA_FLAGS_RELWITHDEBINFO "-O3 -lineinfo -DNDEBUG" CACHE STRING "Flags of nvcc")
  enable_language(CUDA)
  # nvcc supports C++20 from CUDA 12 on, which CMake 3.25 does not know. If no CUDA standard is set, CMake uses that of C++.
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()

  add_library(trireme_cuda_runtime INTERFACE)
  target_include_directories(trireme_cuda_runtime SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS})
  target_link_libraries(trireme_cuda_runtime INTERFACE CUDA::cudart_static)
  # The error of a kernel appears in a later, unrelated call, so audit builds wait for every kernel. Builds for emulated GPUs do not wait:
  # their errors appear immediately, and waiting would hide missing synchronization.
  target_compile_definitions(trireme_cuda_runtime INTERFACE TRIREME_HAVE_CUDA=1 $<$<BOOL:${TRIREME_AUDIT}>:TRIREME_WAIT_FOR_KERNELS=1>)
  # Kernels call constexpr functions of base. No kernel may spill registers or keep an array in local memory: it would be slow, and no test
  # would notice.
  set(_kernel_warnings -Xptxas=-warn-spills,-warn-lmem-usage)
  if(TRIREME_WERROR)
    string(APPEND _kernel_warnings ,-Werror)
  endif()
  target_compile_options(trireme_cuda_runtime INTERFACE
    $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;-Xcompiler=-Wall,-Wextra;${_kernel_warnings}>)

  add_library(trireme_cuda_math INTERFACE)
  get_filename_component(_cublaslt_folder ${CUDA_cublasLt_LIBRARY} DIRECTORY)
  target_compile_definitions(trireme_cuda_math INTERFACE TRIREME_CUBLASLT_FOLDER="${_cublaslt_folder}")
  target_include_directories(trireme_cuda_math SYSTEM INTERFACE ${TRIREME_CUDNN_INCLUDE} ${TRIREME_CUDNN_FRONTEND_INCLUDE})
  target_link_libraries(trireme_cuda_math INTERFACE trireme_cuda_runtime ${TRIREME_CUDNN_LIBRARY})

  add_library(trireme_nccl INTERFACE)
  target_include_directories(trireme_nccl SYSTEM INTERFACE ${TRIREME_NCCL_INCLUDE})
  target_link_libraries(trireme_nccl INTERFACE trireme_cuda_runtime ${TRIREME_NCCL_LIBRARY})

  list(JOIN CMAKE_CUDA_ARCHITECTURES " " _architectures)
  set(TRIREME_CUDA_DESCRIPTION "${CUDAToolkit_VERSION} for ${_architectures}")
  set(TRIREME_CUDNN_DESCRIPTION "${_cudnn_MAJOR}.${_cudnn_MINOR}.${_cudnn_PATCHLEVEL}")
  set(TRIREME_NCCL_DESCRIPTION "${_nccl_MAJOR}.${_nccl_MINOR}.${_nccl_PATCH}")
  message(STATUS "CUDA ${TRIREME_CUDA_DESCRIPTION}, cuDNN ${TRIREME_CUDNN_DESCRIPTION}, NCCL ${TRIREME_NCCL_DESCRIPTION}")
endif()

# Marks source files of a room as kernels. Call it in the room's folder.
function(trireme_kernels)
  if(TRIREME_CUDA STREQUAL "EMULATED")
    set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CXX SKIP_UNITY_BUILD_INCLUSION ON COMPILE_OPTIONS "-Wno-unknown-pragmas")
  endif()
endfunction()
