# Finds the compiler and every library that trireme links, once, and checks their minimum versions.
# modules/packages/setup.sh installs them on Debian 12 and 13 and Ubuntu 24.04.
set(_least_GNU 12)
set(_least_Clang 16)
set(_least ${_least_${CMAKE_CXX_COMPILER_ID}})
if(_least AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS _least AND NOT TRIREME_FUZZ) # clang 14 can compile what the fuzzers need
  message(FATAL_ERROR "${CMAKE_CXX_COMPILER} is ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}: trireme needs g++ 12 or later, or "
    "clang++ 16 or later. CXX=g++-12 CC=gcc-12 in the environment and a new build folder take another one.")
endif()
find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
if(NOT CMAKE_CROSSCOMPILING) # finding the version runs a program
  set(MPI_DETERMINE_LIBRARY_VERSION ON)
endif()
find_package(MPI REQUIRED COMPONENTS C)
if(MPI_C_VERSION AND MPI_C_VERSION VERSION_LESS 3.1) # tests/check_layers.py rejects calls to newer functions
  message(FATAL_ERROR "The MPI of ${MPI_C_LIBRARIES} is version ${MPI_C_VERSION} of the standard: trireme needs 3.1, which Open MPI has from "
    "2.0 and MPICH from 3.2 on. -DMPI_C_COMPILER=DIR/mpicc takes another one.")
endif()
# In C++, mpi.h declares the C++ bindings by default. They were removed from MPI and are not linked.
set_property(TARGET MPI::MPI_C APPEND PROPERTY INTERFACE_COMPILE_DEFINITIONS OMPI_SKIP_MPICXX=1 MPICH_SKIP_MPICXX=1)
find_package(fmt REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(ZLIB REQUIRED)
# Debian's zstd has no CMake package.
find_path(ZSTD_INCLUDE_DIR zstd.h REQUIRED)
find_library(ZSTD_LIBRARY zstd REQUIRED)
add_library(trireme_unpacking INTERFACE) # decompresses text
target_include_directories(trireme_unpacking SYSTEM INTERFACE ${ZSTD_INCLUDE_DIR})
target_link_libraries(trireme_unpacking INTERFACE ZLIB::ZLIB ${ZSTD_LIBRARY})
foreach(_package BZip2 LibLZMA)
  find_package(${_package} QUIET)
  if(TARGET ${_package}::${_package})
    target_link_libraries(trireme_unpacking INTERFACE ${_package}::${_package})
    target_compile_definitions(trireme_unpacking INTERFACE TRIREME_${_package})
  else()
    message(STATUS "${_package} was not found: text that it would decompress is refused")
  endif()
endforeach()

# trireme does not compute with oneDNN: only `bench matmul` uses it, to compare our own kernels with it.
if(TRIREME_ONEDNN)
  find_package(dnnl QUIET)
  if(NOT dnnl_FOUND)
    message(FATAL_ERROR "oneDNN was not found (Debian: libdnnl-dev ocl-icd-opencl-dev; dnnl_DIR may name its CMake folder). "
      "Only bench matmul uses it, as what to compare with: -DTRIREME_ONEDNN=OFF builds without it.")
  elseif(dnnl_VERSION VERSION_LESS 2.6)
    message(FATAL_ERROR "oneDNN ${dnnl_VERSION} in ${dnnl_DIR} is too old: trireme needs 2.6 or later, or -DTRIREME_ONEDNN=OFF")
  endif()
endif()

# Prefer Debian's parallel HDF5: one library for serial and MPI files. H5Pset_file_locking was added in 1.10.7 and 1.12.1.
set(HDF5_PREFER_PARALLEL ON)
find_package(HDF5 COMPONENTS C)
if(NOT HDF5_FOUND)
  if(PROJECT_BINARY_DIR MATCHES " ")
    set(_space " h5pcc and h5cc fail in '${PROJECT_BINARY_DIR}', because of the space in its path: move trireme, or set HDF5_ROOT.")
  endif()
  message(FATAL_ERROR "HDF5 was not found (Debian: libhdf5-openmpi-dev; HDF5_ROOT or -DHDF5_C_COMPILER_EXECUTABLE=DIR/h5pcc may name it).${_space}")
endif()
if(HDF5_VERSION AND (HDF5_VERSION VERSION_LESS 1.10.7 OR (HDF5_VERSION VERSION_GREATER_EQUAL 1.11 AND HDF5_VERSION VERSION_LESS 1.12.1)))
  message(FATAL_ERROR "HDF5 ${HDF5_VERSION} in ${HDF5_C_INCLUDE_DIRS} is too old: trireme needs 1.10.7 or later, and of 1.12 it needs 1.12.1. "
    "-DHDF5_C_COMPILER_EXECUTABLE=DIR/h5pcc (or h5cc) or HDF5_ROOT takes another one.")
endif()
if(NOT HDF5_IS_PARALLEL)
  message(STATUS "HDF5 ${HDF5_VERSION} was built without MPI: trireme writes one file per rank and does not need it")
endif()
add_library(trireme_hdf5 INTERFACE)
target_include_directories(trireme_hdf5 SYSTEM INTERFACE ${HDF5_C_INCLUDE_DIRS})
target_link_libraries(trireme_hdf5 INTERFACE ${HDF5_C_LIBRARIES} MPI::MPI_C)

if(TRIREME_TESTS)
  find_package(GTest REQUIRED)
  # Prefer the distribution's Python, for which h5py, numpy and matplotlib are installed, to the first python3 on PATH.
  find_program(TRIREME_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH DOC "Python with h5py, numpy and matplotlib")
  find_program(TRIREME_PYTHON python3 REQUIRED)
endif()
